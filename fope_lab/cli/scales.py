"""The command `fope-lab scales`: what each shipped model size counts and costs. Torch-free."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from fope_lab.model.config import SCALES, ModelConfig, flops_per_token, parameters
from fope_lab.model.memory import reading_memory, training_memory

if TYPE_CHECKING:
    from rich.console import Console

GIB = 2**30
CAPTION = (
    "Parameters of the layers, the output head (– where it is the token embedding's) and the token"
    " embedding; the papers' names count body and head. FLOPs and memory are those of a training"
    " step on {batch} × {length} tokens in {precision}{checkpointing}, and the memory of reading"
    " as many."
)


def positive(text: str) -> int:
    """For argparse: a whole number of at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {text!r} (allowed: a whole number, at least 1)")
    return number


def run_scales(options: argparse.Namespace, console: Console) -> None:
    """Print a row for each scale: parameters, and FLOPs and memory of a step of the sizes given."""
    rows = [_row(name, config, options) for name, config in SCALES.items()]
    if options.json:
        print(json.dumps({"scales": rows}, indent=1, ensure_ascii=False))
    else:
        _print(rows, options, console)


def _row(name: str, config: ModelConfig, options: argparse.Namespace) -> dict[str, Any]:
    size = parameters(config)
    step = training_memory(
        config,
        batch=options.batch,
        length=options.length,
        precision=options.precision,
        gradient_checkpointing=options.gradient_checkpointing,
    )
    reading = reading_memory(
        config, batch=options.batch, length=options.length, precision=options.precision
    )
    return {
        "scale": name,
        "num_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "num_heads": config.num_heads,
        "num_kv_heads": config.num_kv_heads,
        "body": size.body,
        "head": size.head,
        "named": size.body + size.head,
        "embedding": size.embedding,
        "total": size.total,
        "flops": options.batch * options.length * flops_per_token(config, options.length),
        "memory": step.peak,
        "activations": step.activations,
        "memory_reading": reading.peak,
    }


def _print(rows: list[dict[str, Any]], options: argparse.Namespace, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("scale")
    table.add_column("layers × width")
    for name in ("body", "head", "body + head", "embedding", "total", "FLOPs", "memory", "reading"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            Text(row["scale"]),
            f"{row['num_layers']} × {row['hidden_size']}",
            *(_millions(row[part]) for part in ("body", "head", "named", "embedding", "total")),
            f"{row['flops']:.2e}",
            *(f"{row[part] / GIB:,.2f} GiB" for part in ("memory", "memory_reading")),
        )
    console.print(table)
    checkpointing = ", with gradient checkpointing" if options.gradient_checkpointing else ""
    sizes = {name: getattr(options, name) for name in ("batch", "length", "precision")}
    caption = CAPTION.format(**sizes, checkpointing=checkpointing)
    console.print(f"\n{caption}", highlight=False, markup=False)


def _millions(count: int) -> str:
    return f"{count / 1e6:,.1f}M" if count else "–"
