"""Round and Round (Barbero et al., arXiv 2410.06205): published numbers, and its analyses."""

from fope_lab.papers.p_rope import (
    attention_head,
    cauchy_schwarz,
    constructions,
    marked_head,
    positional_heads,
    random_decay,
    semantic_heads,
    value_norms,
)

__all__ = [
    "attention_head",
    "cauchy_schwarz",
    "constructions",
    "marked_head",
    "positional_heads",
    "random_decay",
    "semantic_heads",
    "value_norms",
]
