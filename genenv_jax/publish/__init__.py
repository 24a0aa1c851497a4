"""What leaves the machine: the cards of exported models, and their way to the Hugging Face hub."""
