"""Round and Round (Barbero et al., arXiv 2410.06205): published numbers, and its analyses."""

from fope_lab.papers.p_rope import constructions, one_head, value_norms

__all__ = ["constructions", "one_head", "value_norms"]
