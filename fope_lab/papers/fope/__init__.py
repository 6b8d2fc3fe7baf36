"""FoPE (Hua et al., arXiv 2412.17739): its published numbers, the analyses of its figures, and its
downstream tasks in olmo_eval's forms."""

from fope_lab.papers.fope import downstream, frequencies, harmonics, qk_magnitude

__all__ = ["downstream", "frequencies", "harmonics", "qk_magnitude"]
