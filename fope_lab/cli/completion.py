"""`fope-lab completion`: argcomplete's script for a shell, and the words that it asks for.

Stages are those of the sweeps that the store has recorded. Their names are read from the records
directly: to import what else reads them takes longer than a press of TAB should.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fope_lab.cli.shared_options import argument, command
from fope_lab.config.environment import OK, default_store

KEY_DIGITS = 8
"""The digits of a key that are offered, as tables show them."""


def answer_shell(parser: argparse.ArgumentParser) -> None:
    """Print what can come next and end the process, if a shell asks; otherwise do nothing."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    import argcomplete
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter, SuppressCompleter

    from fope_lab.config.shipped import shipped_names

    files, sweeps = FilesCompleter(), FilesCompleter(("yaml",))
    completers: dict[str | None, Callable[..., Any]] = {
        "STAGE": _stages,
        "CHECKPOINT": lambda **of: [*_stages(**of), *files(of["prefix"])],
        # The shipped sweeps, once a first letter is typed.
        "FILE": lambda prefix, **_: [*sweeps(prefix), *(shipped_names() if prefix else ())],
        "DIR": DirectoriesCompleter(),
        "GLOB": files,
        "NAME.yaml": files,
    }
    for action in _actions(parser):
        if isinstance(action.metavar, str) and action.metavar in completers:
            action.completer = completers[action.metavar]  # type: ignore[attr-defined]
    argcomplete.autocomplete(
        parser, always_complete_options=False, default_completer=SuppressCompleter()
    )


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)


def _stages(*, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """The sections, the labels and the keys of the stages of all recorded sweeps."""
    store = Path(getattr(parsed_args, "store", None) or default_store()).expanduser()
    found: dict[str, list[str]] = {"section": [], "label": [], "key": []}
    for path in sorted((store / "tracking" / "sweeps").glob("*/plan.json")):
        try:
            for stage in json.loads(path.read_text(encoding="utf-8"))["stages"]:
                for field, texts in found.items():
                    texts.append(stage[field][: KEY_DIGITS if field == "key" else None])
        except (OSError, ValueError, KeyError, TypeError):  # a record that is damaged
            continue
    return list(dict.fromkeys(text for texts in found.values() for text in texts if text))


@command(
    "completion",
    "print a script that lets a shell complete commands, options, sweep files and stages",
    argument(
        "shell",
        'the shell; for bash, `eval "$(fope-lab completion bash)"`',
        "{bash,zsh,fish}",
        choices=("bash", "zsh", "fish"),
    ),
)
def completion(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["fope-lab"], shell=options.shell))
    return OK


COMMANDS = (completion,)
