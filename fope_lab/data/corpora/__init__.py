"""Corpora: text to train and evaluate on, from this machine or from the hub."""
