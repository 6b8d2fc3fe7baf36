"""The table of `fope-lab scales`: the parameters of each model size, and the cost of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fope_lab.model.config import SCALES, flops_per_token, parameters
from fope_lab.model.memory import reading_memory, training_memory

GIB = 2**30
PARAMETERS = ("body", "head", "named", "embedding", "total")
SIZES = ("num_layers", "hidden_size", "num_heads", "num_kv_heads")
CAPTION = (
    "Body: parameters of the layers. Head: those of the output head (– if it shares the token"
    " embedding's). The papers name sizes by body + head. FLOPs and memory are those of a training"
    " step on {batch} × {length} tokens in {precision}{checkpointing}; reading is the memory of a"
    " forward pass over the same tokens."
)


def scale_rows(sizes: Mapping[str, Any], *, checkpointing: bool) -> list[dict[str, Any]]:
    """The parameters of each scale, and the FLOPs and bytes of memory of a training step.

    `sizes` has the step's batch, length and precision.
    """
    rows, tokens = [], sizes["batch"] * sizes["length"]
    for name, config in SCALES.items():
        size = parameters(config)
        training = training_memory(config, **sizes, gradient_checkpointing=checkpointing)
        row = {
            "scale": name,
            **{field: getattr(config, field) for field in SIZES},
            "body": size.body,
            "head": size.head,
            "named": size.body + size.head,
            "embedding": size.embedding,
            "total": size.total,
            "flops": tokens * flops_per_token(config, sizes["length"]),
            "memory": training.peak,
            "activations": training.activations,
            "memory_reading": reading_memory(config, **sizes).peak,
        }
        rows.append(row)
    return rows


def print_scales(
    rows: Sequence[Mapping[str, Any]],
    sizes: Mapping[str, Any],
    checkpointing: bool,
    console: Console,
) -> None:
    """Print the rows of `scale_rows` as a table, with a caption that says what the step is."""
    table = Table("scale", "layers × width", box=None, pad_edge=False)
    for name in ("body", "head", "body + head", "embedding", "total", "FLOPs", "memory", "reading"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            Text(row["scale"]),
            f"{row['num_layers']} × {row['hidden_size']}",
            *(f"{row[part] / 1e6:,.1f}M" if row[part] else "–" for part in PARAMETERS),
            f"{row['flops']:.2e}",
            *(f"{row[part] / GIB:,.2f} GiB" for part in ("memory", "memory_reading")),
        )
    console.print(table)
    how = ", with gradient checkpointing" if checkpointing else ""
    caption = CAPTION.format(**sizes, checkpointing=how)
    console.print(f"\n{caption}", highlight=False, markup=False)
