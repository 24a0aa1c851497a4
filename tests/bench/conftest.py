"""Scripts of bench/ import each other by bare name, and so do their tests."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
