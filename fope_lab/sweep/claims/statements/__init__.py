"""The forms of a claim, one per file: how it is written, what it compares, and what it tests."""
