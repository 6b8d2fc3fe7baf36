"""Synthetic tasks: prompts whose right answer is known."""
