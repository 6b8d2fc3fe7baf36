"""Low-rank adapters: which projections get one, and how many parameters these add. Torch-free.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", arXiv 2106.09685, §4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from annotated_types import MinLen

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import EachOnce
from fope_lab.config.options import Options
from fope_lab.config.problems import Problem
from fope_lab.model.config import BRANCHES, ModelConfig

Projection = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PROJECTIONS: tuple[str, ...] = get_args(Projection)


@dataclass(frozen=True, kw_only=True)
class Adapter(Options):
    """Train W + (alpha/rank)·B·A in place of each projection W, whose weights stay: A and B have
    `rank` rows and columns, and B starts at 0. What a position embedding learns is trained too."""

    rank: Annotated[int, Interval(ge=1, le=65_536), Doc("The rank of each change of a weight.")]
    alpha: (
        Annotated[float, Interval(gt=0), Doc("The change is scaled by alpha/rank; default rank.")]
        | None
    ) = None
    targets: Annotated[
        tuple[Projection, ...],
        MinLen(1),
        EachOnce(),
        Doc("The projections of each layer that get an adapter, under Llama's names."),
    ] = ("q_proj", "k_proj", "v_proj", "o_proj")

    @property
    def scale(self) -> float:
        return 1.0 if self.alpha is None else self.alpha / self.rank

    def parameters(self, config: ModelConfig) -> int:
        """How many parameters the adapters of all layers have."""
        sizes = projection_sizes(config)
        return config.num_layers * sum(self.rank * sum(sizes[name]) for name in self.targets)

    def misfits(self, config: ModelConfig) -> Iterable[Problem]:
        """What is wrong with it for a model of these sizes."""
        sizes = projection_sizes(config)
        for place, name in enumerate(self.targets):
            if name not in sizes:
                fault = f"found {name}, but the feed-forward {config.feed_forward} has no gate"
                yield Problem(("targets", place), fault, allowed=tuple(sizes))
        widths = {min(sizes[name]): name for name in self.targets if name in sizes}
        if widths and self.rank > min(widths):
            name = widths[min(widths)]
            fault = f"found {self.rank}, more than the {min(widths)} dimensions of {name}"
            yield Problem(("rank",), fault)


def projection_sizes(config: ModelConfig) -> Mapping[str, tuple[int, int]]:
    """The inputs and outputs of each projection of a layer, by name."""
    width, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    sizes = {"q_proj": (width, queries), "k_proj": (width, keys), "v_proj": (width, keys)}
    sizes |= {"o_proj": (queries, width)}
    if BRANCHES[config.feed_forward] == 2:
        sizes["gate_proj"] = (width, inner)
    return sizes | {"up_proj": (width, inner), "down_proj": (inner, width)}
