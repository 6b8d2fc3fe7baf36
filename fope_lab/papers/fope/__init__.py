"""FoPE (Hua et al., arXiv 2412.17739): its published numbers and the analyses of its figures."""

from fope_lab.papers.fope import (
    gaussian_contribution,
    harmonics,
    low_pass,
    qk_magnitude,
    spectrum_damage,
    truncated_wave,
)

__all__ = [
    "gaussian_contribution",
    "harmonics",
    "low_pass",
    "qk_magnitude",
    "spectrum_damage",
    "truncated_wave",
]
