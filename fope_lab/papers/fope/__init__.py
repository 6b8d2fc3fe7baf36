"""FoPE (Hua et al., arXiv 2412.17739): its published numbers, the analyses of its figures, and its
downstream tasks in olmo_eval's forms."""

from fope_lab.papers.fope import (
    downstream,
    gaussian_contribution,
    harmonics,
    low_pass,
    qk_magnitude,
    spectrum_damage,
    truncated_wave,
)

__all__ = [
    "downstream",
    "gaussian_contribution",
    "harmonics",
    "low_pass",
    "qk_magnitude",
    "spectrum_damage",
    "truncated_wave",
]
