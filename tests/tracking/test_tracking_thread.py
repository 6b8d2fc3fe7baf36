"""MLflow is imported by one thread alone.

Ray Tune imports it on the main thread. Where two threads import a package of modules that import
each other, each can hold the module that the other waits for: Python then raises a deadlock error
in one of them, which ended a run.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys, threading
from fope_lab.store import Store
from fope_lab.tracking import Tracker, TrackingThread

class Recorder:
    def find_spec(self, name, path=None, target=None):
        importing.setdefault(threading.current_thread().name, []).append(name)

importing = {}
sys.meta_path.insert(0, Recorder())
thread = TrackingThread(Tracker(Store.create(sys.argv[1]).root, None), [])
thread.start()
ready = "mlflow" in sys.modules
thread.flush()
print(ready, "mlflow" in importing["MainThread"], importing.get("fope-lab-tracking"))
"""


def test_the_thread_that_starts_tracking_imports_mlflow(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout == "True True None\n", done.stderr
