"""Resonance RoPE (Wang et al., arXiv 2403.00071): published numbers, two analyses, its L-Eval."""

from fope_lab.papers.resonance import angles, leval

__all__ = ["angles", "leval"]
