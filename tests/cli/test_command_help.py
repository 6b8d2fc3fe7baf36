"""Every command is found and explains itself; a misspelt one gets the nearest name."""

from __future__ import annotations

import argparse
import importlib.metadata
import re

import pytest

from fope_lab.cli import COMMANDS, main
from fope_lab.cli.shared_options import Command

EVERY = [*COMMANDS.values(), *COMMANDS["store"].actions]


@pytest.mark.parametrize("command", EVERY, ids=lambda command: command.name)
def test_every_command_and_argument_has_a_help_of_its_own(command: Command) -> None:
    parser = argparse.ArgumentParser()
    for add in command.arguments:
        add(parser)
    helps = [command.help, *(action.help for action in parser._actions)]
    for text in helps:
        assert text is not None
        assert len(text.split()) > 2, text
        assert not text.endswith("."), text
    assert len(set(helps)) == len(helps)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runn"],
         "unknown command 'runn'; did you mean 'run'? (allowed: new, validate, plan, run, "),
        (["xyz", "--json"], "unknown command 'xyz' (allowed: new, validate, plan, run, "),
        (["run", "--stor", "x"],
         "unknown option '--stor'; did you mean '--store'? (allowed: --help, --store, "),
        (["evaluate", "x", "--task=passkey"], "'--task'; did you mean '--tasks'?"),
        (["report", "x.yaml", "--markdwon", "--json"], "'--markdwon'; did you mean '--markdown'?"),
        (["stop", "--x"], "unknown option '--x' (allowed: --help, --store)"),
        (["--versoin"], "'--versoin'; did you mean '--version'?"),
        (["schema", "x"], "fope-lab schema: error: unrecognized arguments: x"),
        (["store", "list", "x"], "fope-lab store list: error: unrecognized arguments: x"),
        (["completion"], "the following arguments are required: {bash,zsh,fish}"),
        (["-x", "schema"], "unrecognized arguments: -x"),
        (["store", "verfy"], "unknown action 'verfy'; did you mean 'verify'? (allowed: list, "),
        (["store", "verify", "--repiar"], "'--repiar'; did you mean '--repair'?"),
        (["store", "--version"], "unknown option '--version' (allowed: --help)"),
        (["ui", "--port", "99999"], "--port: found '99999', needs a whole number, 1 to 65535"),
        (["plan", "x.yaml", "--price", "-1"],
         "--price: found '-1', needs a number of dollars, at least 0"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_one_clear_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    *usage, error = capsys.readouterr().err.splitlines()
    assert usage[0].startswith("usage: fope-lab")
    assert message in error


@pytest.mark.parametrize(
    ("arguments", "names"),
    [([], list(COMMANDS)), (["store"], [action.name for action in COMMANDS["store"].actions])],
)
def test_no_command_is_answered_by_all_of_them(
    arguments: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert all(f"\n    {name} " in told or f"\n    {name}\n" in told for name in names)


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["-V"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"fope-lab {importlib.metadata.version('fope-lab')}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--help", "plan"]])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("    ") and line[4] != " "]
    assert listed == list(COMMANDS)


def test_help_of_a_command_lists_its_actions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["store", "--help"])
    assert stopped.value.code == 0
    output = capsys.readouterr().out
    assert output.startswith("usage: fope-lab store")
    for action in COMMANDS["store"].actions:
        assert re.search(rf"^    {action.name} +\w+", output, flags=re.MULTILINE)
