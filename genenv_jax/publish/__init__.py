"""Publishing: cards of exported models, and their upload to the Hugging Face hub."""
