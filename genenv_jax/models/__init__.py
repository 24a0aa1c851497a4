"""Language models in Flax, their files, tokenizers and templates."""

import os

# Read when transformers is imported; otherwise it would advise installing PyTorch.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
