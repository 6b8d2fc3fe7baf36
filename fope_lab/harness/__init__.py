"""fope-lab's tasks for lm-evaluation-harness, in the form that it reads from a folder.

    lm_eval --include_path "$(fope-lab harness)" --tasks fope_lab_passkey …

A task is a YAML file here, with the functions that it names in a module beside it.
"""

from __future__ import annotations

from pathlib import Path

TASKS = Path(__file__).parent
"""The folder for `--include_path`, or for `TaskManager(include_path=…)`."""
