"""Corpora, tokenizers, packed tokens, training batches and synthetic tasks."""
