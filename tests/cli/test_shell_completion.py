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


def next_words(line: str) -> list[str]:
    """What a shell gets that asks how this line can go on."""
    answer = Path("answer")
    environment = os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer.absolute()),
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    subprocess.run([sys.executable, "-m", "fope_lab.cli"], env=environment, check=True)
    words = answer.read_text().replace("\\", "").splitlines()  # a shell reads \[ as [
    answer.unlink()
    return words


def test_commands_options_and_values(store: Store) -> None:
    assert next_words("fope-lab ") == list(COMMANDS)
    assert next_words("fope-lab store p") == ["prune"]
    assert next_words("fope-lab run x.yaml --re") == ["--retry-failed", "--redo", "--redo-stale"]
    assert next_words("fope-lab completion ") == ["bash", "zsh", "fish"]
    assert next_words("fope-lab plan --price ") == []


def test_sweep_files_folders_and_sweeps_that_come_with_the_package(store: Store) -> None:
    assert set(next_words("fope-lab run ")) == {"completed.yaml", "fope-store/", "sweeps/"}
    assert next_words("fope-lab run completed.yaml sweeps/") == ["sweeps/other.yaml"]
    assert next_words("fope-lab status quick") == ["quickstart"]
    assert "mini/fope-table2" in next_words("fope-lab run mini/")


def test_stages_by_section_label_and_key(store: Store) -> None:
    stages = known_stages(store)
    names = {name for s in stages for name in (s.section, s.label, s.key[:8])}
    assert set(next_words("fope-lab logs ")) == names
    found = next_words("fope-lab run completed.yaml --only pass")
    assert found == ["passkey", "passkey[seed=0]", "passkey[seed=1]"]
    assert next_words(f"fope-lab logs --store {store.root}-other ") == []


def test_a_damaged_record_offers_nothing(store: Store) -> None:
    [record] = (store.root / "tracking" / "sweeps").glob("*/plan.json")
    record.write_text('{"stages": [1, {"name": 2}]}')
    assert next_words("fope-lab logs ") == []
    record.write_text('{"stages": 3}')
    assert next_words("fope-lab logs ") == []


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("fope-lab stor", "store "),
        ("fope-lab run comp", "completed.yaml "),
        ("fope-lab logs prep", None),
        ("fope-lab logs passkey[seed=1", r"passkey\[seed=1\] "),
    ],
)
def test_a_real_bash(line: str, completed: str | None, store: Store, tmp_path: Path) -> None:
    """What its completion function leaves in COMPREPLY."""
    bash = shutil.which("bash")
    assert bash is not None
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "fope-lab"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fope_lab.cli "$@"\n')
    command.chmod(0o755)
    script = (
        'eval "$(fope-lab completion bash)"\n'
        "COMP_LINE=$1; COMP_POINT=${#1}; COMP_TYPE=9; COMP_WORDBREAKS=' '\n"
        "_python_argcomplete fope-lab\n"
        '[[ ${#COMPREPLY[@]} = 1 ]] && printf "%s" "${COMPREPLY[0]}"'
    )
    environment = os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [bash, "-c", script, "bash", line],
        capture_output=True, text=True, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert (done.stdout or None) == completed, done.stderr


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
