"""A driver as a process of its own: it holds the lease of a stage until it is interrupted.

Run as `python driver_process.py FOLDER`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fope_lab.orchestration.ending import signals_interrupt
from fope_lab.store.attempts import driver_name
from fope_lab.store.folder import StageFolder

if __name__ == "__main__":
    with signals_interrupt(), StageFolder(Path(sys.argv[1])).begin(driver_name(), {}):
        print("begun", flush=True)
        time.sleep(60)
