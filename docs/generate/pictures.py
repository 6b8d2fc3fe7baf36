"""Pictures of embeddings, drawn from the real torch modules at one size.

A rotation is shown by the wavelength of its pairs, and by the score of a query and a key whose
entries are all 1, over their distance. A bias is shown over the distance, for each head. Learned
numbers are those that training starts from.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fope_lab.drawing.panels import curve, legend, panels
from fope_lab.drawing.svg import DASHED, inline_svg
from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.spec import EXAMPLES, example
from fope_lab.model.exact import logits_of
from fope_lab.model.scores import attend
from fope_lab.model.seen import Block, Seen

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fope_lab.embeddings.module import PositionEmbedding

HEAD_DIM, NUM_HEADS, TRAIN_LENGTH = 64, 8, 512
SIZES = {
    "head_dim": HEAD_DIM,
    "num_heads": NUM_HEADS,
    "train_length": TRAIN_LENGTH,
    "hidden_size": HEAD_DIM,
}
FACTOR = EXAMPLES["factor"]
LONGEST = int(FACTOR) * TRAIN_LENGTH
COLOURS = ("#172396", "#e8730b", "#1b7837")
"""Of the embeddings of a pattern."""
WEIGHED = 64
"""The tokens of a picture of weights."""
AT = (
    f"Drawn at head_dim {HEAD_DIM}, {NUM_HEADS} heads, a hidden state of {HEAD_DIM} dimensions, a"
    f" training length of {TRAIN_LENGTH} tokens and, where a factor is needed, factor {FACTOR:g}."
)


@functools.cache
def module(name: str) -> PositionEmbedding:
    """The torch module of a preset at the size of the pictures."""
    return build_embedding(example(name), **SIZES)


def picture(name: str) -> str | None:
    """An inline SVG of what an embedding does by position; None if it does nothing."""
    embedding = module(name)
    titles = {
        "Wavelength of each pair": embedding.inv_freq is not None,
        "Score of equal vectors by distance": embedding.rotates,
        "Bias by distance": embedding.biases,
        "What is added, by position": _adds(embedding),
        "Weight of tokens without content, by distance": _weighs(embedding),
        "How far back each layer sees": embedding.definition.place == "layers",
    }
    shown = [title for title, applies in titles.items() if applies]
    if not shown:
        return None
    with panels(shown, width=340, height=230) as (figure, plots):
        for title, axes in zip(shown, plots, strict=True):
            DRAWINGS[title](axes, embedding)
        handles = [axes for axes in plots if axes.get_legend_handles_labels()[0]]
        if handles:
            legend(figure, handles[0])
    return inline_svg(figure, f"picture-{name}", f"{name}", f"{', '.join(shown)}. {AT}")


def thumbnail(name: str) -> str | None:
    """A small picture of an embedding's effect by distance; None if it has none."""
    embedding = module(name)
    applies = {
        "How far back each layer sees": embedding.definition.place == "layers",
        "Bias by distance": embedding.biases,
        "Score of equal vectors by distance": embedding.rotates,
        "What is added, by position": _adds(embedding),
        "Weight of tokens without content, by distance": _weighs(embedding),
    }
    title = next((kind for kind, it in applies.items() if it), None)
    if title is None:
        return None
    with panels([""], width=230, height=130) as (figure, [axes]):
        DRAWINGS[title](axes, embedding)
        axes.set(xlabel="", ylabel="")
        axes.tick_params(labelsize=8)
    return inline_svg(figure, f"thumbnail-{name}", name, f"{title}. {AT}")


def _adds(embedding: PositionEmbedding) -> bool:
    zeros = torch.zeros(1, 2, HEAD_DIM)
    return bool(embedding.embed(zeros, torch.arange(2)).any())


def _weighs(embedding: PositionEmbedding) -> bool:
    return embedding.definition.place in ("hidden", "attention")


def _wavelengths(axes: Axes, embedding: PositionEmbedding) -> None:
    reference = module("rope").inv_freq
    assert reference is not None
    pairs = np.arange(HEAD_DIM // 2)
    axes.plot(pairs, 2 * math.pi / reference.numpy(), label="rope", **DASHED)
    own = np.array(embedding.definition.pair_frequencies(embedding.shape, LONGEST))
    turning, own_pairs = own > 0, pairs[: len(own)]
    wavelength = np.where(turning, 2 * math.pi / np.where(turning, own, 1), np.nan)
    axes.plot(
        own_pairs,
        wavelength,
        color="#172396",
        marker="o",
        markersize=3,
        linestyle="none",
        label=embedding.definition.name if embedding is module("rope") else "this embedding",
    )
    axes.plot(
        own_pairs[~turning],
        np.ones((~turning).sum()),
        color="#e8730b",
        marker="x",
        markersize=4,
        linestyle="none",
        transform=axes.get_xaxis_transform(),
        clip_on=False,
        label="does not rotate" if (~turning).any() else None,
    )
    axes.axhline(TRAIN_LENGTH, **{**DASHED, "linestyle": ":"}, label="training length")
    axes.set(xlabel="pair of dimensions", ylabel="tokens in a cycle", yscale="log")
    axes.yaxis.set_major_formatter("{x:,.0f}")  # powers of ten would be TeX, which SVG text is not
    axes.yaxis.set_minor_formatter("")


def _scores(axes: Axes, embedding: PositionEmbedding) -> None:
    positions = torch.arange(LONGEST)
    ones = torch.ones(1, NUM_HEADS, LONGEST, HEAD_DIM)
    torch.manual_seed(0)
    if embedding.draws_positions:
        positions = embedding.positions(LONGEST)
    with torch.no_grad():
        hidden = torch.zeros(1, LONGEST, embedding.shape.width)
        at = embedding.places(positions)
        scores = embedding.scores(ones, embedding.streams(hidden, ones, ones, at), at)
        last = Block(slice(LONGEST - 1, LONGEST), slice(0, LONGEST))
        logits = logits_of(scores, last, torch.float32)[0, :, 0] / math.sqrt(HEAD_DIM)
    _by_distance(axes, logits.flip(-1).numpy())
    axes.set_ylabel("mean product of a pair")


def _bias(axes: Axes, embedding: PositionEmbedding) -> None:
    positions = torch.arange(LONGEST)
    with torch.no_grad():
        bias = embedding.bias(positions[-1:], positions)
    assert bias is not None
    _by_distance(axes, bias[:, 0].flip(-1).numpy())
    axes.set_ylabel("bias of a logit")


def _by_distance(axes: Axes, values: NDArray[Any]) -> None:
    """Draw values (heads, distances): every head that differs from the first, thinned to 512."""
    step = max(1, values.shape[1] // 512)
    for head in range(values.shape[0]):
        if head == 0 or not np.allclose(values[head], values[0]):
            curve(axes, values[head, ::step], head, x=np.arange(values.shape[1])[::step])
    axes.axvline(TRAIN_LENGTH, **{**DASHED, "linestyle": ":"})
    axes.set_xlabel("distance, tokens")


def _added(axes: Axes, embedding: PositionEmbedding) -> None:
    hidden = torch.zeros(1, TRAIN_LENGTH, HEAD_DIM)
    added = embedding.embed(hidden, torch.arange(TRAIN_LENGTH))[0].detach().numpy()
    for slot, dimension in enumerate(range(0, HEAD_DIM, 16)):
        curve(axes, added[:, dimension], slot, f"dimension {dimension}")
    axes.set(xlabel="position, tokens", ylabel="value")


def _weights(axes: Axes, embedding: PositionEmbedding) -> None:
    """The weights of a query whose own states, and those of all tokens, are 0."""
    length = WEIGHED
    zeros = torch.zeros(1, NUM_HEADS, length, HEAD_DIM)
    values = torch.eye(length).expand(1, NUM_HEADS, -1, -1)
    at = embedding.places(torch.arange(length))
    with torch.no_grad():
        hidden = torch.zeros(1, length, embedding.shape.width)
        kept = embedding.streams(hidden, zeros, zeros, at)
        mixed = attend(embedding.scores(zeros, kept, at), values, Seen(length, length))
    _by_distance(axes, mixed[0, :, -1].flip(-1).numpy())
    axes.set(ylabel="weight", xlim=(0, WEIGHED))


def _layers(axes: Axes, embedding: PositionEmbedding) -> None:
    """A bar for each layer of the pattern, as long as its window, with its embedding's name."""
    plans = embedding.definition.layers(len(embedding.definition.pattern))
    names = list(dict.fromkeys(plan.embedding for plan in plans))
    for layer, plan in enumerate(plans):
        colour = COLOURS[names.index(plan.embedding) % len(COLOURS)]
        axes.barh(layer, plan.window or LONGEST, color=colour, height=0.7, alpha=0.4)
        text = plan.embedding.name + ("" if plan.window is None else f", window {plan.window}")
        axes.text(LONGEST * 0.02, layer, text, va="center", fontsize=8)
    axes.set(xlabel="distance, tokens", ylabel="layer", xlim=(0, LONGEST))
    axes.set_yticks(range(len(plans)))
    axes.invert_yaxis()


DRAWINGS = {
    "Wavelength of each pair": _wavelengths,
    "Score of equal vectors by distance": _scores,
    "Bias by distance": _bias,
    "What is added, by position": _added,
    "Weight of tokens without content, by distance": _weights,
    "How far back each layer sees": _layers,
}
