"""Puts the sweeps of the repository into the wheel; everything else is in pyproject.toml.

An editable install and a clone read them where they are (fope_lab/config/shipped.py).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SWEEPS = Path(__file__).parent / "sweeps"
PLACE = "fope_lab/shipped_sweeps"


class BuildWithSweeps(build_py):
    """Copies the sweeps beside the modules of the package."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            shutil.copytree(SWEEPS, Path(self.build_lib, PLACE), dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithSweeps})
