"""The paper's two statements about the α-curriculum (arXiv 2512.19682), held against a real model."""
