"""`fope-lab export`: a checkpoint as a folder that Hugging Face's transformers load."""

from __future__ import annotations

import argparse

from rich.console import Console


def run_export(options: argparse.Namespace, console: Console) -> None:
    """Write the folder and say how to load it. Raises CheckpointError, DataError."""
    from fope_lab.model.checkpoint import find_checkpoint, read_config
    from fope_lab.model.export.folder import export
    from fope_lab.model.export.sources import MODEL_FILE

    folder = export(options.checkpoint, options.directory, to=options.to)
    trust = ", trust_remote_code=True" if (folder / MODEL_FILE).exists() else ""
    lines = [
        f"{folder}: load it with",
        f"  AutoModelForCausalLM.from_pretrained({str(folder)!r}{trust})",
    ]
    if read_config(find_checkpoint(options.checkpoint)).tokenizer == "byte":
        lines.append(
            "It has no tokenizer: its tokens are the bytes of UTF-8 text, 256 the end of a text."
        )
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
