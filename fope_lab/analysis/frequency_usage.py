"""Which frequencies of a rotation a model uses: the norms of its queries and keys, pair by pair.

Barbero et al. (Round and Round), arXiv 2410.06205: §4 with Fig. 3 and 4. By Cauchy–Schwarz, the
norms of a pair bound what its frequency can add to a score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from fope_lab.analysis.activations import record
from fope_lab.analysis.base import Analysis, Arrays, Progress, Subject
from fope_lab.analysis.pairs import pair_norms, quarter_shares, rotated_frequencies
from fope_lab.analysis.passages import passages
from fope_lab.data.problems import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fope_lab.model.decoder import Decoder

KINDS = ("query", "key")


def mean_norms(
    model: Decoder, rows: NDArray[np.int64], progress: Progress = lambda done, total: None
) -> dict[str, NDArray[np.float64]]:
    """Mean 2-norm of each pair over the tokens of rows (passages, length), before rotation: `query`
    (layers, num_heads, head_dim/2) and `key` (layers, num_kv_heads, head_dim/2), pair 0 first."""
    import torch

    config = model.config
    sums = {
        kind: np.zeros((config.num_layers, heads, config.head_dim // 2))
        for kind, heads in zip(KINDS, (config.num_heads, config.num_kv_heads), strict=True)
    }
    device = model.embed_tokens.weight.device
    for i, row in enumerate(rows):
        for layer, *both in record(model, torch.from_numpy(row)[None].to(device)):
            for kind, x in zip(KINDS, both, strict=True):
                sums[kind][layer] += pair_norms(x)[0].mean(dim=1, dtype=torch.float64).cpu().numpy()
        progress(i + 1, len(rows))
    return {kind: total / len(rows) for kind, total in sums.items()}


@dataclass(frozen=True, kw_only=True)
class FrequencyUsage(
    Analysis,
    name="frequency-usage",
    source="Barbero et al. (Round and Round), arXiv 2410.06205, Fig. 3 and 4",
    says=(
        "Most of the norm lies in the slowest pairs; the fastest are used most in the first and the"
        " last layer, by a few heads."
    ),
    needs="text",
):
    """Mean norms of queries and keys by pair and layer, and by pair and head in one layer."""

    sequences: Annotated[int, Ge(1)] = 10
    length: Annotated[int, Ge(2)] = 256
    layer: Annotated[int, Ge(0)] = 0

    @property
    def tokens(self) -> int:
        """All sequences'."""
        return self.sequences * self.length

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
        """`frequencies` (head_dim/2,) in radians per token, from fast to slow; `query` (layers,
        num_heads, head_dim/2) and `key` (layers, num_kv_heads, head_dim/2)."""
        assert subject is not None  # as it needs a text
        layers = subject.model.config.num_layers
        if self.layer >= layers:
            raise DataError(f"layer {self.layer} is not there: layers are 0 to {layers - 1}")
        frequencies = rotated_frequencies(subject.model, self.name)
        norms = mean_norms(subject.model, passages(subject, self.sequences, self.length), progress)
        return {"frequencies": frequencies, **norms}

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """For queries and keys: the shares of the norm in the slowest and in the fastest quarter of
        the pairs, mean over layers, and the latter in the first, the last and the other layers."""
        found: dict[str, float] = {}
        for kind in KINDS:
            fast, slow = quarter_shares(arrays[kind].mean(axis=1))
            found |= {f"{kind}_slow_share": slow.mean(), f"{kind}_fast_share": fast.mean()}
            found |= {f"{kind}_fast_share_first": fast[0], f"{kind}_fast_share_last": fast[-1]}
            if len(fast) > 2:
                found[f"{kind}_fast_share_between"] = fast[1:-1].mean()
        return {name: float(value) for name, value in found.items()}

    def draw(self, arrays: Arrays) -> Figure:
        """Queries and keys by layer, then by head of the chosen layer."""
        from fope_lab.drawing.heatmap import Heatmap, draw_cells
        from fope_lab.drawing.panels import panels

        maps = {
            f"Mean norm by layer, {name}": (arrays[kind].mean(axis=1), "layer")
            for kind, name in zip(KINDS, ("queries", "keys"), strict=True)
        } | {
            f"Mean norm in layer {self.layer}, {name}": (arrays[kind][self.layer], "head")
            for kind, name in zip(KINDS, ("queries", "keys"), strict=True)
        }
        titles = [f"{title}: 0 to {values.max():.3g}" for title, (values, _) in maps.items()]
        with panels(titles, columns=2, width=390) as (figure, plots):
            for axes, (values, rows) in zip(plots, maps.values(), strict=True):
                axes.grid(visible=False)
                heatmap = Heatmap(
                    title="",
                    x_label="pair of dimensions, fastest to slowest",
                    y_label=rows,
                    x_ticks=tuple(map(str, range(values.shape[1]))),
                    y_ticks=tuple(map(str, range(values.shape[0]))),
                    values=values,
                    high=float(values.max()),
                )
                draw_cells(axes, heatmap, numbers=False)
        return figure
