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


OPEN = "open"
"""The window of a layer of a preset that its user gives."""


def _preset(source: str, mechanism: str, *transforms: str, **options: Any) -> Preset:
    chain = {"transforms": [{"type": name} for name in transforms]} if transforms else {}
    return Preset({"type": mechanism, **options, **chain}, source)


def _pattern(source: str, *layers: Mapping[str, Any]) -> Preset:
    """A pattern of embeddings, some of them `_windowed`."""
    return Preset({"type": "layered", "pattern": [*layers]}, source)


def _layer(name: str, **options: Any) -> Mapping[str, Any]:
    return {"embedding": {"type": name, **options}}


def _windowed(name: str, **options: Any) -> Mapping[str, Any]:
    return {**_layer(name, **options), "window": OPEN}


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
    "partial": _preset("Black et al. (GPT-NeoX), arXiv 2204.06745, §2.1", "rotary", fraction=0.25),
    "longrope": _preset("Ding et al. (LongRoPE), arXiv 2402.13753", "rotary", "longrope"),
    "clipped": _preset("arXiv 2602.05258 (there CoPE), a soft floor", "rotary", "clipped"),
    "hope": _preset("Chen et al. (HoPE), arXiv 2410.21216: is fope-cf", "rotary", "clip_floor"),
    "xpos": _preset("Sun et al. (xPos), arXiv 2212.10554", "xpos"),
    "random-float-rope": _preset("arXiv 2602.14050, with RoPE", "random-float-rope"),
    "random-float-alibi": _preset("arXiv 2602.14050, with ALiBi", "random-float-alibi"),
    "random-float-sinusoidal": _preset(
        "arXiv 2602.14050, with sinusoidal positions", "random-float-sinusoidal"
    ),
    "self-extend": _preset("Jin et al. (Self-Extend), arXiv 2401.01325", "self-extend"),
    "rerope": _preset("Su (ReRoPE), 2023, as released", "rerope"),
    "dca": _preset("An et al. (DCA), arXiv 2402.17463", "dca"),
    "t5": _preset("Raffel et al. (T5), arXiv 1910.10683", "t5"),
    "sandwich": _preset("Chi et al. (Sandwich), arXiv 2212.10356", "sandwich"),
    "fox": _preset("Lin et al. (FoX), arXiv 2503.02130", "fox"),
    "cable": _preset("Veisi et al. (CABLE), arXiv 2503.08067: is fox", "fox"),
    "path": _preset("Yang et al. (PaTH), arXiv 2505.16381", "path"),
    "selective-rope": _preset("arXiv 2511.17388", "selective-rope"),
    "repo": _preset("Li et al. (RePo), arXiv 2512.14391", "repo"),
    "cope-contextual": _preset("Golovneva et al. (CoPE), arXiv 2405.18719", "cope-contextual"),
    "sink": _preset("gpt-oss (OpenAI, 2025), as released", "sink"),
    "stick-breaking": _preset("Tan et al., arXiv 2410.17980", "stick-breaking"),
    "rnope-swa": _pattern(
        "Yang et al., arXiv 2501.18795", *[_windowed("rope")] * 3, _layer("nope")
    ),
    "irope": _pattern(
        "Llama 4 (Meta, 2025), as released",
        *[_layer("rope", base=500_000.0)] * 3,
        _layer("nope", query_scale={"type": "temperature"}),
    ),
    "smollm3": _pattern(
        "SmolLM3 (Hugging Face, 2025), as released", *[_layer("rope")] * 3, _layer("nope")
    ),
    "gemma3": _pattern(
        "Gemma 3, arXiv 2503.19786, §2",
        *[_windowed("rope", base=10_000.0)] * 5,
        _layer("pi", base=1_000_000.0, factor=8.0),
    ),
    "olmo3": _pattern(
        "OLMo 3 (Ai2, 2025), as released",
        *[_windowed("rope", base=500_000.0)] * 3,
        _layer("yarn", base=500_000.0),
    ),
}
