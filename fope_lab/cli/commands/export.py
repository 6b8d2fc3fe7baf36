"""`fope-lab export`: write a checkpoint as a Hugging Face folder."""

from __future__ import annotations

import argparse

from fope_lab.cli.checkpoint_words import checkpoint_places
from fope_lab.cli.console import make_console
from fope_lab.cli.shared_options import CHECKPOINT, add_store, argument
from fope_lab.config.environment import OK

HELP = "write a model as a folder for Hugging Face's transformers"
ARGUMENTS = (
    argument("checkpoint", metavar="CHECKPOINT", help=CHECKPOINT),
    argument("directory", metavar="DIR", help="a new or empty folder"),
    argument(
        "--to",
        choices=["fope-lab", "llama", "gpt2"],
        default="fope-lab",
        help="fope-lab: any model, together with its code (default); "
        "llama, gpt2: transformers' own Llama or GPT-2, for models that its code can express",
    ),
    add_store,
)


def run(options: argparse.Namespace) -> int:
    """Write the folder and print how to load it; returns the exit code."""
    from fope_lab.housekeeping.model_origin import origin_of
    from fope_lab.model.export.folder import MODEL_FILE, export
    from fope_lab.store import Store

    [checkpoint] = checkpoint_places([options.checkpoint], options.store)
    origin = origin_of(checkpoint, Store.open(options.store))
    folder = export(checkpoint, options.directory, to=options.to, origin=origin)
    trust = ", trust_remote_code=True" if (folder / MODEL_FILE).exists() else ""
    lines = [
        f"{folder}: load it with",
        f"  AutoModelForCausalLM.from_pretrained({str(folder)!r}{trust})",
        f"  AutoTokenizer.from_pretrained({str(folder)!r}{trust})",
    ]
    for line in lines:
        make_console().print(line, soft_wrap=True, highlight=False, markup=False)
    return OK
