"""Tokenizers map text to ids and back; they are published, or trained by a sweep."""
