"""Corpora: text to train and evaluate on, from local files or from the Hugging Face hub."""
