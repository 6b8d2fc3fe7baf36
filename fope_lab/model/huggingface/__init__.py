"""Reads checkpoints of transformers: their configuration and their weights."""
