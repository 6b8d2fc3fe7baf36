"""The sweep files that come with fope-lab."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from pathlib import Path

from fope_lab.stages.key import config_json
from fope_lab.sweep import Sweep, load_sweep

ROOT = Path(__file__).parents[2]
_TEXTS = tempfile.TemporaryDirectory()
"""The folder of short texts in place of those that a user provides."""
Path(_TEXTS.name, "tinyshakespeare.txt").write_text("To be, or not to be.\n\n" * 100)


def sweep_files() -> list[Path]:
    """Every shipped sweep file."""
    return sorted((ROOT / "sweeps").rglob("*.yaml"))


@functools.cache  # the pages ask for every sweep many times
def load_shipped(file: Path) -> Sweep:
    """The sweep of a shipped file, as for a user who provides the texts that it names."""
    with contextlib.chdir(_TEXTS.name):
        return load_sweep(file)


def reads_own_text(sweep: Sweep) -> bool:
    """Whether a shipped sweep reads a text that the user provides, which its keys depend on."""
    return any(_TEXTS.name in str(config_json(stage.spec)) for stage in sweep.stages)
