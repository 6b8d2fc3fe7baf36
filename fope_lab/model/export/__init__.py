"""Writes a checkpoint as a Hugging Face folder."""
