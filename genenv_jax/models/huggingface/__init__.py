"""Finds, reads, writes and fingerprints model directories in Hugging Face format."""

from genenv_jax.models.huggingface.directory import fingerprint, read_config, read_generation_config, resolve
from genenv_jax.models.huggingface.reader import load_params
from genenv_jax.models.huggingface.writer import save_model

__all__ = ["fingerprint", "load_params", "read_config", "read_generation_config", "resolve", "save_model"]
