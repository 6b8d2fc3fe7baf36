"""The methods of the papers by name: each is a composition of a mechanism and transforms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    """A method's composition, and the paper that proposed it.

    What the composition leaves open is the user's: options go to the parts that have them, so that
    `{type: fope-yarn, factor: 4, sigma: 0.4}` sets the factor of `yarn` and the sigma of `fourier`.
    """

    composition: Mapping[str, Any]
    source: str


def _preset(source: str, mechanism: str, *transforms: str, **options: Any) -> Preset:
    chain = {"transforms": [{"type": name} for name in transforms]} if transforms else {}
    return Preset({"type": mechanism, **options, **chain}, source)


FOPE = "Hua et al. (FoPE), arXiv 2412.17739"
RESONANCE = "Wang et al. (Resonance RoPE), arXiv 2403.00071"
ROUND_AND_ROUND = "Barbero et al. (Round and Round), arXiv 2410.06205"

PRESETS: Mapping[str, Preset] = {
    "nope": _preset("Kazemnejad et al. (NoPE), arXiv 2305.19466", "nope"),
    "sinusoidal": _preset("Vaswani et al. (Transformer), arXiv 1706.03762, §3.5", "sinusoidal"),
    "learned": _preset("Radford et al. (GPT-2), 2019", "learned"),
    "rope": _preset("Su et al. (RoFormer), arXiv 2104.09864", "rotary"),
    "alibi": _preset("Press et al. (ALiBi), arXiv 2108.12409", "alibi"),
    "kerple": _preset("Chi et al. (KERPLE), arXiv 2205.09921, logarithmic", "kerple"),
    "kerple-power": _preset("Chi et al. (KERPLE), arXiv 2205.09921, power", "kerple_power"),
    "fire": _preset("Li et al. (FIRE), arXiv 2310.04418", "fire"),
    "fope": _preset(FOPE, "fourier", "clip_floor"),
    "fope-fs": _preset(f"{FOPE}, Fig. 6a: the series alone", "fourier"),
    "fope-cf": _preset(f"{FOPE}, Fig. 6a: the floor alone", "rotary", "clip_floor"),
    "fope-official": _preset(
        f"{FOPE}, as released",
        "fourier",
        "clip_floor",
        below_floor="official",
        output_pairs="official",
        noise="official",
    ),
    "rope-a": _preset(f"{FOPE}, Table 2", "rotary", "full_cycles"),
    "p-rope": Preset(
        {"type": "rotary", "transforms": [{"type": "truncate", "p": 0.75}]},
        f"{ROUND_AND_ROUND}, §6.1",
    ),
    "pi": _preset("Chen et al. (PI), arXiv 2306.15595", "rotary", "interpolate"),
    "ntk": _preset("bloc97 (2023), in YaRN, arXiv 2309.00071, §3.1", "rotary", "ntk"),
    "dynamic-ntk": _preset("emozilla (2023), in YaRN, arXiv 2309.00071", "rotary", "dynamic_ntk"),
    "yarn": _preset("Peng et al. (YaRN), arXiv 2309.00071", "rotary", "yarn"),
    "llama3": Preset(
        {
            "type": "rotary",
            "transforms": [
                {"type": "yarn", "ramp": "cycles", "beta": 4.0, "attention_factor": 1.0}
            ],
        },
        "Grattafiori et al. (Llama 3), arXiv 2407.21783, as released",
    ),
    "resonance-rope": _preset(RESONANCE, "rotary", "resonance"),
    "resonance-yarn": _preset(RESONANCE, "rotary", "yarn", "resonance"),
    "fope-yarn": _preset(f"{FOPE}, §5.3", "fourier", "clip_floor", "yarn"),
    "random-rope": _preset("Ruoss et al., arXiv 2305.16843, with RoPE", "randomised"),
}
