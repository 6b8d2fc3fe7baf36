"""Comparisons of results: claims with their verdicts, and published numbers."""
