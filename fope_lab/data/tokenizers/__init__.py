"""Tokenizers: text to ids and back, published ones and ones trained by a sweep."""
