"""The words that argcomplete offers a shell, and a real bash that asks for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import kept_sweep
import pytest

from fope_lab.cli import COMMANDS, main
from fope_lab.cli.housekeeping.known_stages import known_stages
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep, plan
from fope_lab.tracking.ledger import Ledger

SWEEP = kept_sweep.SWEEP.partition("grid:")[0].replace("kept", "completed\nseeds: [0, 1]")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The default store of a folder with a sweep, which it has recorded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOPE_LAB_STORE", str(tmp_path / "fope-store"))
    (tmp_path / "completed.yaml").write_text(SWEEP)
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "other.yaml").write_text(SWEEP)
    store = Store.create(tmp_path / "fope-store")
    sweep = load_sweep(tmp_path / "completed.yaml")
    Ledger(store, "none").save_outline(plan(sweep, store))
    return store


ANSWER = """
import os, sys
from fope_lab.cli import main

for number, line in enumerate(sys.argv[1:]):
    if os.fork() == 0:
        answer = {"COMP_LINE": line, "COMP_POINT": str(len(line))}
        os.environ.update(answer, _ARGCOMPLETE_STDOUT_FILENAME=f"answer{number}")
        main([])  # which ends the process
    os.wait()
"""


def next_words(*lines: str) -> list[list[str]]:
    """What a shell gets that asks how each of these lines can go on."""
    environment = os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    subprocess.run([sys.executable, "-c", ANSWER, *lines], env=environment, check=True)
    answers = [Path(f"answer{number}") for number in range(len(lines))]
    words = [path.read_text().replace("\\", "").splitlines() for path in answers]  # \[ is [
    for path in answers:
        path.unlink()
    return words


def test_commands_options_and_values(store: Store) -> None:
    assert next_words(
        "fope-lab ",
        "fope-lab store p",
        "fope-lab run x.yaml --re",
        "fope-lab completion ",
        "fope-lab plan --price ",
    ) == [
        list(COMMANDS),
        ["prune"],
        ["--retry-failed", "--redo", "--redo-stale"],
        ["bash", "zsh", "fish"],
        [],
    ]


def test_sweep_files_folders_and_sweeps_that_come_with_the_package(store: Store) -> None:
    files, inside, shipped, small = next_words(
        "fope-lab run ",
        "fope-lab run completed.yaml sweeps/",
        "fope-lab status quick",
        "fope-lab run mini/",
    )
    assert set(files) == {"completed.yaml", "fope-store/", "sweeps/"}
    assert inside == ["sweeps/other.yaml"]
    assert shipped == ["quickstart"]
    assert "mini/fope-table2" in small


def test_stages_by_section_label_and_key(store: Store) -> None:
    """A store that is not there offers none, nor does a damaged record."""
    damaged = []
    for number, text in enumerate(('{"stages": [1, {"name": 2}]}', '{"stages": 3}')):
        shutil.copytree(store.root, copied := f"{store.root}-{number}")
        [record] = Path(copied).glob("tracking/sweeps/*/plan.json")
        record.write_text(text)
        damaged.append(f"fope-lab logs --store {copied} ")
    found, only, *nothing = next_words(
        "fope-lab logs ",
        "fope-lab run completed.yaml --only pass",
        f"fope-lab logs --store {store.root}-other ",
        *damaged,
    )
    stages = known_stages(store)
    assert set(found) == {name for s in stages for name in (s.section, s.label, s.key[:8])}
    assert only == ["passkey", "passkey[seed=0]", "passkey[seed=1]"]
    assert nothing == [[], [], []]


def test_a_real_bash(store: Store, tmp_path: Path) -> None:
    """What its completion function leaves in COMPREPLY, if that is one word."""
    bash = shutil.which("bash")
    assert bash is not None
    completed = {
        "fope-lab stor": "store ",
        "fope-lab run comp": "completed.yaml ",
        "fope-lab logs prep": "",
        "fope-lab logs passkey[seed=1": r"passkey\[seed=1\] ",
    }
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "fope-lab"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fope_lab.cli "$@"\n')
    command.chmod(0o755)
    script = (
        'eval "$(fope-lab completion bash)"\n'
        'for line in "$@"; do\n'
        "COMP_LINE=$line; COMP_POINT=${#line}; COMP_TYPE=9; COMP_WORDBREAKS=' '; COMPREPLY=()\n"
        "_python_argcomplete fope-lab\n"
        'if [[ ${#COMPREPLY[@]} = 1 ]]; then echo "${COMPREPLY[0]}"; else echo; fi\n'
        "done"
    )
    environment = os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [bash, "-c", script, "bash", *completed],
        capture_output=True, text=True, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert dict(zip(completed, done.stdout.splitlines(), strict=True)) == completed, done.stderr


def test_a_press_of_tab_is_quick(store: Store) -> None:
    """The processor time of a whole process, which other programs do not lengthen."""
    times = []
    for _ in range(3):
        before = os.times()
        next_words("fope-lab logs p")
        after = os.times()
        times.append(
            after.children_user + after.children_system
            - before.children_user - before.children_system
        )  # fmt: skip
    assert min(times) < 0.4


def test_a_shell_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["completion", "bsh"])
    assert stopped.value.code == 2
    told = "found 'bsh'; did you mean 'bash'? (allowed: bash, zsh, fish)"
    assert told in capsys.readouterr().err
