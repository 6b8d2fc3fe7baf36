"""Corpora, tokenizers, packed tokens, training batches, synthetic tasks and benchmark files."""
