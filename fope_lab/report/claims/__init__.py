"""Verdicts on the claims of a sweep, and the seeds that its rule adds until they are decided."""
