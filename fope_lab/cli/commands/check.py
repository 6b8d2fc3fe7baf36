"""`fope-lab check`: what a model does with position, beside transformers or another model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.cli import shared_options as shared
from fope_lab.cli.shared_options import argument, command, flag
from fope_lab.config.console import make_console, say
from fope_lab.config.environment import FAILED, OK

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Table

    from fope_lab.model.check import Compared, Kind
    from fope_lab.model.checkpoint_files import CheckpointConfig

SHORTEST = 16


@command(
    "check",
    "say what a model does with position, and compare its logits with transformers'",
    argument("model", shared.CHECKPOINT, "MODEL"),
    argument("--against", "another model, in place of transformers' reading of this one", "MODEL"),
    shared.count("--longest", "the most tokens to compare logits at (default: 1024)", 2**17, 1024),
    flag("--no-logits", "compare no logits: no weights are read"),
    argument("--out", "write the picture of the wavelengths to this SVG file", "FILE"),
    shared.add_json,
    shared.add_plugins,
    shared.add_store,
)
def check(options: argparse.Namespace) -> int:
    from fope_lab.cli.commands.models import checkpoint_places
    from fope_lab.data.problems import DataError
    from fope_lab.data.tokenizers.tokenizer import load_tokenizer
    from fope_lab.model.check import differences, doubts, kinds
    from fope_lab.model.checkpoint import read_config, read_description
    from fope_lab.model.checkpoint_files import CheckpointError
    from fope_lab.store.folder import find_checkpoint

    def place(word: str) -> str:
        [found] = checkpoint_places([word], options.store)
        return str(find_checkpoint(found)) if Path(found).is_dir() else found

    console = make_console(stderr=options.json)
    path = place(options.model)
    if options.out and not Path(options.out).absolute().parent.is_dir():
        raise CheckpointError(f"--out: {Path(options.out).parent} is not a folder")
    description, config, refused = read_description(path), None, None
    tokenizer, missing = None, None
    try:
        config = read_config(path)
    except CheckpointError as error:
        refused = str(error)
    try:
        tokenizer = load_tokenizer(config.tokenizer) if config else None
    except DataError as error:
        missing = str(error)
    found: dict[str, Any] = {"model": path, "refused": refused}
    found["doubts"] = [*doubts(description, tokenizer), *([missing] if missing else [])]
    found["kinds"] = [vars(kind) for kind in kinds(config)] if config else []
    compared: Sequence[Compared] = ()
    if config is not None:
        other = place(options.against) if options.against else None
        beside = None if other is None else read_config(other)
        found["differences"] = [] if beside is None else list(differences(config, beside))
        if not options.no_logits:
            compared = _logits(path, other, description, config, beside, options.longest, console)
        found["logits"] = [vars(each) for each in compared]
        if options.out:
            from fope_lab.drawing.svg import standalone_svg

            figure = _picture(kinds(config), config)
            svg = standalone_svg(figure, "Wavelengths", f"Of each pair of {path}")
            Path(options.out).write_text(svg, encoding="utf-8")
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        _print(found, kinds(config) if config else [], compared, options, console)
    differs = any(each.first is not None for each in compared)
    return FAILED if refused or differs else OK


def _logits(
    path: str,
    other: str | None,
    description: dict[str, Any],
    config: CheckpointConfig,
    beside: CheckpointConfig | None,
    longest: int,
    console: Console,
) -> list[Compared]:
    """The comparison by length, doubled from SHORTEST on. One model is in memory at a time."""
    import torch

    from fope_lab.model.check import compare
    from fope_lab.model.checkpoint import EXPORTED, load_model
    from fope_lab.model.checkpoint_files import CheckpointError
    from fope_lab.model.hub import hub_name, model_folder

    kind = description.get("model_type")
    if other is None and kind in (None, EXPORTED):
        say(console, "logits: transformers has no class of its own for this model")
        return []
    models = [config, *([] if beside is None else [beside])]
    if len({each.model.vocab_size for each in models}) > 1:
        say(console, "logits: the two models have vocabularies of different sizes")
        return []
    ends = [each.embedding.longest_sequence(_shape(each)) or longest for each in models]
    most = min(longest, *ends)
    lengths = [SHORTEST << n for n in range(32) if SHORTEST << n <= most] or [most]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.model.vocab_size, (1, max(lengths)), generator=generator)

    def logits_of(model: Any) -> list[torch.Tensor]:
        with torch.inference_mode():
            return [model(ids[:, :length]).logits.float() for length in lengths]

    ours = logits_of(load_model(path))
    if other is not None:
        theirs = logits_of(load_model(other))
    else:
        from transformers import AutoModelForCausalLM, logging

        # Its warnings are among the doubts, in words about this model.
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        name = hub_name(path)
        folder = path if name is None else str(model_folder(name))
        # No other attention of theirs has the caps of Gemma 2.
        how = {"dtype": torch.float32, "attn_implementation": "eager"}
        try:
            theirs = logits_of(AutoModelForCausalLM.from_pretrained(folder, **how).eval())
        except Exception as error:  # whatever its classes raise for what they can't be made of
            kind = type(error).__name__
            raise CheckpointError(f"transformers doesn't read {path}: {kind}: {error}") from None
    return [compare(one, two) for one, two in zip(ours, theirs, strict=True)]


def _shape(config: CheckpointConfig) -> Any:
    from fope_lab.embeddings.base import Shape

    return Shape(**config.model.head_sizes, train_length=config.train_length)


def _print(
    found: dict[str, Any],
    of: Sequence[Kind],
    compared: Sequence[Compared],
    options: argparse.Namespace,
    console: Console,
) -> None:
    if found["refused"]:
        say(console, f"not read: {found['refused']}", style="red")
    if of:
        console.print(_kinds_table(of))
    if options.against and not found["refused"]:
        say(console, *(found["differences"] or [f"the layers of {options.against} do the same"]))
    if compared:
        console.print(_logits_table(compared, options.against or "transformers"))
        first = next((each for each in compared if each.first is not None), None)
        if first is None:
            say(console, "no logit differs by more than rounding")
        else:
            at = f"at {first.length:,} tokens, from token {first.first:,} on"
            say(console, f"logits differ {at}", style="red")
    for doubt in found["doubts"]:
        say(console, f"! {doubt}", style="yellow")
    if options.out and of:
        say(console, f"picture: {options.out}")


def _kinds_table(of: Sequence[Kind]) -> Table:
    from rich.table import Table

    from fope_lab.model.check import ranges

    table = Table(box=None, pad_edge=False)
    for title in ("layers", "embedding", "base", "rotates", "wavelengths", "scaling", "window"):
        table.add_column(title, overflow="fold")
    for title in ("attention factor", "query scale"):
        table.add_column(title, overflow="fold")
    for kind in of:
        waves = kind.wavelengths
        factor = kind.attention_factor**2 * kind.logit_factor
        table.add_row(
            ranges(kind.layers),
            kind.embedding,
            "–" if kind.base is None else f"{kind.base:,.0f}",
            f"{kind.rotating} of {kind.head_dim}",
            "–" if waves is None else f"{waves[0]:,.1f} to {waves[1]:,.0f}",
            ", ".join(kind.scaling) or "–",
            "–" if kind.window is None else f"{kind.window:,}",
            "–" if factor == 1 else f"{kind.attention_factor:.4f} (logits × {factor:.4f})",
            kind.query_scale or "–",
        )
    return table


def _logits_table(compared: Sequence[Compared], name: str) -> Table:
    from rich.table import Table

    table = Table("tokens", box=None, pad_edge=False, title=f"logits beside {name}")
    for title in ("largest difference", "standard deviation", "first token that differs"):
        table.add_column(title, justify="right")
    for each in compared:
        first = "–" if each.first is None else f"{each.first:,}"
        table.add_row(f"{each.length:,}", f"{each.largest:.1e}", f"{each.deviation:.2f}", first)
    return table


def _picture(of: Sequence[Kind], config: CheckpointConfig) -> Figure:
    """The wavelength of each pair, a curve for each kind of layers, beside lengths and windows."""
    import numpy as np

    from fope_lab.analysis.spectrum import plain_ticks
    from fope_lab.drawing.panels import curve, legend, panels
    from fope_lab.drawing.svg import DASHED, MUTED
    from fope_lab.model.check import ranges

    shape, plans = _shape(config), config.embedding.layers(config.model.num_layers)
    with panels(["Wavelengths of the pairs"], width=460, height=320) as (figure, [axes]):
        for slot, kind in enumerate(of):
            omegas = np.array(plans[kind.layers[0]].embedding.pair_frequencies(shape))
            turning = np.flatnonzero(omegas)
            window = "" if kind.window is None else f", window {kind.window:,}"
            label = f"layer{'s' * (len(kind.layers) > 1)} {ranges(kind.layers)}{window}"
            curve(axes, 2 * np.pi / omegas[turning], slot, label, turning)
        lines = {kind.window: "window" for kind in of if kind.window is not None}
        lines |= {config.context_length: "context length", config.train_length: "training length"}
        for length, name in lines.items():
            axes.axhline(length, **DASHED)
            beside, label = axes.get_yaxis_transform(), f"{name} {length:,}"
            axes.text(0.01, length, label, transform=beside, va="bottom", color=MUTED)
        axes.set(xlabel="pair, fastest to slowest", ylabel="tokens", yscale="log")
        plain_ticks(axes, "y")
        legend(figure, axes, columns=1)
    return figure


COMMANDS = (check,)
