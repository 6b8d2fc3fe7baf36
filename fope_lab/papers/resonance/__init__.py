"""Resonance RoPE (Wang et al., arXiv 2403.00071): published numbers, two analyses, its L-Eval."""

from fope_lab.papers.resonance import feature_gap, leval, rotation_angles

__all__ = ["feature_gap", "leval", "rotation_angles"]
