"""A driver's folder goes with its run, even if a process that is ending still writes there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fope_lab.orchestration.scratch import scratch_folder, stop_request
from fope_lab.store import Store


def test_what_is_written_while_the_folder_is_removed_goes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, calls = shutil.rmtree, []

    def beside_a_writer(folder: Path, **options: Any) -> None:
        remove(folder, **options)
        calls.append(folder)
        if len(calls) < 3:  # a worker writes its last result
            (folder / "run").mkdir(parents=True)
            (folder / "run" / "result.json").write_text("{}")

    monkeypatch.setattr(shutil, "rmtree", beside_a_writer)
    with scratch_folder(Store(tmp_path), "driver", ["sweep"]) as folder:
        assert not stop_request(Store(tmp_path), "driver").is_made()
    assert not folder.exists()
    assert len(calls) == 3
