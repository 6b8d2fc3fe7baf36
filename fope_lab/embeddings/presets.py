"""The methods of the papers by name: each is a composition of a mechanism and transforms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "nope": {"type": "nope"},
    "rope": {"type": "rotary"},
    "alibi": {"type": "alibi"},
    "fope": {"type": "fourier", "transforms": [{"type": "clip_floor"}]},
    "yarn": {"type": "rotary", "transforms": [{"type": "yarn"}]},
    "fope-yarn": {"type": "fourier", "transforms": [{"type": "clip_floor"}, {"type": "yarn"}]},
}
"""What is left open is the user's: options go to the parts that have them, so that
`{type: fope-yarn, factor: 4, sigma: 0.4}` sets the factor of `yarn` and the sigma of `fourier`."""
