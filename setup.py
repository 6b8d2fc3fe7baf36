"""Puts the sweeps and the tested versions into the wheel; everything else is in pyproject.toml.

An editable install and a clone read them where they are (fope_lab/config/shipped.py).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithSweeps(build_py):
    """Copies the sweeps and constraints.txt beside the modules of the package."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            package = Path(self.build_lib, "fope_lab")
            shutil.copytree(ROOT / "sweeps", package / "shipped_sweeps", dirs_exist_ok=True)
            shutil.copyfile(ROOT / "constraints.txt", package / "constraints.txt")


setup(cmdclass={"build_py": BuildWithSweeps})
