"""The tutorial's commands, run in their order in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate.transcripts import recorded, steps
from docs.record_tutorial import FIGURE, run


def test_the_recorded_run_is_that_of_the_page() -> None:
    assert list(recorded()) == steps()


@pytest.mark.cluster
def test_every_command_works_in_an_empty_folder(tmp_path: Path) -> None:
    """The trainings are shortened after the sweep file is written; nothing else is changed."""

    def shorten(command: str) -> None:
        sweep = tmp_path / "first.yaml"
        if command.startswith("fope-lab validate"):
            text, changed = re.subn(r"tokens: 1e6", "tokens: 10240", sweep.read_text())
            assert changed == 1
            sweep.write_text(text)

    record = run(steps(), tmp_path, shorten)
    outputs = {step["command"]: step["output"] for step in record}
    assert "All 10 stages are done" in outputs["fope-lab run first.yaml"]
    assert (tmp_path / FIGURE).read_text().startswith("<svg")
    assert FIGURE in outputs["fope-lab report first.yaml --figures figures"]
