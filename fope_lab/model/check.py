"""What a model does with position, layer by layer, and what goes wrong in the field without a word.

The facts need no torch. The doubts are about files that load, and whose numbers are not those that
their authors meant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.embeddings.base import Embedding, LayerPlan, Shape
from fope_lab.model.checkpoint_files import CheckpointConfig
from fope_lab.model.families.base import FAMILIES

if TYPE_CHECKING:
    from torch import Tensor

Json = Mapping[str, Any]
PLAIN_THETA = 10_000.0
"""What a reader takes for a base that it does not find."""


@dataclass(frozen=True)
class Kind:
    """The layers that attend alike, and how.

    `rotating` are the dimensions of a head that rotate, of `head_dim`; `wavelengths` are the
    shortest and the longest in tokens, of frequencies at the training length; `scaling` are the
    changes of RoPE's frequencies.
    """

    layers: tuple[int, ...]
    embedding: str
    base: float | None
    rotating: int
    head_dim: int
    wavelengths: tuple[float, float] | None
    scaling: tuple[str, ...]
    attention_factor: float
    logit_factor: float
    window: int | None
    query_scale: str | None

    @property
    def said(self) -> dict[str, Any]:
        """All but the layers."""
        return {name: value for name, value in vars(self).items() if name != "layers"}


def kinds(config: CheckpointConfig) -> list[Kind]:
    """The kinds of layers of a model, in the order of their first layers."""
    shape = Shape(**config.model.head_sizes, train_length=config.train_length)
    plans = config.embedding.layers(config.model.num_layers)
    found: dict[tuple[Embedding, int | None], list[int]] = {}
    for number, plan in enumerate(plans):
        found.setdefault((plan.embedding, plan.window), []).append(number)
    return [_kind(tuple(layers), plans[layers[0]], shape) for layers in found.values()]


def _kind(layers: tuple[int, ...], plan: LayerPlan, shape: Shape) -> Kind:
    of = plan.embedding
    turning = [omega for omega in of.pair_frequencies(shape) if omega]
    waves = (2 * math.pi / max(turning), 2 * math.pi / min(turning)) if turning else None
    transforms = getattr(of, "transforms", ())
    return Kind(
        layers=layers,
        embedding=of.name,
        base=getattr(of, "base", None) if turning else None,
        rotating=2 * len(turning),
        head_dim=shape.head_dim,
        wavelengths=waves,
        scaling=tuple(_words(each.canonical()) for each in transforms),
        attention_factor=of.attention_factor(shape),
        logit_factor=of.logit_factor(shape),
        window=plan.window,
        query_scale=None if of.query_scale is None else _words(of.query_scale.canonical()),
    )


def _words(part: Json) -> str:
    """A transform or a scale with its options; of a long list the ends."""
    rest = {name: value for name, value in part.items() if name != "type"}
    return " ".join([str(part["type"]), *(f"{name} {_short(v)}" for name, v in rest.items())])


def _short(value: Any) -> str:
    if isinstance(value, list) and len(value) > 2:
        return f"[{value[0]:g} … {value[-1]:g}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def ranges(layers: Sequence[int]) -> str:
    """(0, 1, 2, 4) → "0–2, 4"."""
    runs = itertools.groupby(enumerate(layers), lambda pair: pair[1] - pair[0])
    ends = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in ends)


def doubts(description: Json, tokenizer: Tokenizer | None) -> Iterator[str]:
    """What may not be meant in the config.json of transformers, and in the tokenizer beside it."""
    for where, rope in _ropes(description):
        yield from (f"{where}{doubt}" for doubt in _of_rope(description, rope))
    yield from _of_bases(description)
    family = FAMILIES.all().get(str(description.get("model_type")))
    if family is not None:
        yield from family.doubts(description)
    if tokenizer is None:
        return
    size = description.get("vocab_size")
    if isinstance(size, int) and tokenizer.tokens > size:
        yield (
            f"the tokenizer has {tokenizer.tokens:,} tokens, and the model {size:,}: the ids from"
            f" {size:,} on have no embedding"
        )
    begins = None if family is None else family.begins
    adds = bool(tokenizer.prefix_ids)
    if begins is False and adds:
        yield (
            f"the tokenizer begins each text with {list(tokenizer.prefix_ids)}, but models of"
            f" {description.get('model_type')} are trained without a token there"
        )
    if begins is True and not adds:
        yield (
            f"the tokenizer adds no token at the beginning, but models of"
            f" {description.get('model_type')} are trained with one"
        )


def _ropes(description: Json) -> Iterator[tuple[str, Json]]:
    """The sets of parameters of the rotation, with the place of each."""
    for name in ("rope_scaling", "rope_parameters"):
        inside = description.get(name)
        if not isinstance(inside, Mapping):
            continue
        nested = {k: v for k, v in inside.items() if isinstance(v, Mapping)}
        if nested:
            yield from ((f"{name}.{kind}: ", each) for kind, each in nested.items())
        else:
            yield f"{name}: ", inside


def _of_rope(description: Json, rope: Json) -> Iterator[str]:
    kind = rope.get("rope_type", rope.get("type", "default"))
    given = rope.get("factor")
    factor = float(given) if isinstance(given, int | float) else 1.0
    scales = factor != 1
    if kind == "default" and scales:
        yield f"the factor {factor:g} does nothing, because the type is default"
    if kind in ("linear", "yarn", "llama3", "dynamic") and given == 1:
        yield f"a factor of 1 scales nothing, so {kind} does nothing"
    lists = [rope.get("short_factor"), rope.get("long_factor")]
    if kind == "longrope" and all(each is not None and {*each} == {1} for each in lists):
        yield "all factors are 1, so longrope scales nothing"
    own = rope.get("attention_factor")
    gains = rope.get("mscale"), rope.get("mscale_all_dim")
    equal = own is None and gains[0] and gains[0] == gains[1]
    if kind == "yarn" and scales and (own == 1 or equal):
        meant = 0.1 * math.log(factor) + 1
        yield f"YaRN's attention factor is 1 here, not 0.1·ln s + 1 = {meant:.4f}"
    if kind == "longrope" and own == 1:
        yield "LongRoPE's attention factor is 1 here, not √(1 + ln s / ln L)"
    original = rope.get("original_max_position_embeddings")
    longest = description.get("max_position_embeddings")
    if kind == "yarn" and scales and isinstance(original, int) and isinstance(longest, int):
        reach = original * factor
        if abs(reach - longest) > 0.01 * longest:
            yield (
                f"the factor {factor:g} takes {original:,} tokens to {reach:,.0f}, and"
                f" max_position_embeddings is {longest:,}"
            )
    share = rope.get("partial_rotary_factor", description.get("partial_rotary_factor"))
    if kind == "proportional" and share not in (None, 1):
        yield (
            f"only the fastest {share:g} of the pairs rotate, by the frequencies of a whole head"
            " (p-RoPE); a reader that takes this for a partial rotation gives other numbers"
        )


def _of_bases(description: Json) -> Iterator[str]:
    """A base that versions 4 and 5 of transformers do not both find."""
    beside, inside = description.get("rope_theta"), description.get("rope_parameters")
    if not isinstance(inside, Mapping) or not inside:
        return
    sets = [each for each in inside.values() if isinstance(each, Mapping)] or [inside]
    bases = [each.get("rope_theta") for each in sets]
    if beside is None and any(base not in (None, PLAIN_THETA) for base in bases):
        yield (
            f"the base {', '.join(f'{b:g}' for b in bases if b is not None)} is in rope_parameters"
            f" alone: transformers 4 reads {PLAIN_THETA:g}, or the default of its class"
        )
    if beside is not None and beside not in bases and any(base is not None for base in bases):
        yield f"rope_theta is {beside:g}, and rope_parameters has {bases}: which is meant?"
    scaled = [e for e in sets if e.get("rope_type", "default") != "default"]
    if scaled and not description.get("rope_scaling"):
        kinds = ", ".join(str(each["rope_type"]) for each in scaled)
        yield f"the scaling {kinds} is in rope_parameters alone: transformers 4 reads none"


def differences(one: CheckpointConfig, other: CheckpointConfig) -> Iterator[str]:
    """How two models differ in what their layers do with position."""
    mine, theirs = ({n: kind for kind in kinds(c) for n in kind.layers} for c in (one, other))
    if len(mine) != len(theirs):
        yield f"{len(mine)} layers beside {len(theirs)}"
    changes: dict[tuple[str, str, str], list[int]] = {}
    for number in mine.keys() & theirs.keys():
        said = mine[number].said, theirs[number].said
        for name, value in said[0].items():
            if value != said[1][name]:
                changes.setdefault((name, _said(value), _said(said[1][name])), []).append(number)
    for (name, here, there), layers in changes.items():
        yield f"layers {ranges(layers)}: {name.replace('_', ' ')} {here} beside {there}"
    if one.model.vocab_size != other.model.vocab_size:
        yield f"a vocabulary of {one.model.vocab_size:,} beside {other.model.vocab_size:,} tokens"
    for name in ("train_length", "context_length"):
        here, there = getattr(one, name), getattr(other, name)
        if here != there:
            yield f"{name.replace('_', ' ')} {here:,} beside {there:,}"


def _said(value: Any) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return ", ".join(map(_short, value))
    return _short(value)


@dataclass(frozen=True)
class Compared:
    """The logits of two models for as many tokens: their largest difference and the standard
    deviation of the second's; `first` is the first token whose logits differ, if any do."""

    length: int
    largest: float
    deviation: float
    first: int | None


TOLERANCE = 1e-3
"""The share of the standard deviation of logits by which rounding may move one."""


def compare(one: Tensor, other: Tensor) -> Compared:
    """Compare logits (1, length, vocabulary)."""
    distance = (one - other).abs().amax(dim=(0, 2))
    deviation = float(other.std())
    far = (distance > TOLERANCE * deviation).nonzero()
    first = int(far[0]) if len(far) else None
    return Compared(one.shape[1], float(distance.max()), deviation, first)
