"""Which heavy packages a piece of code imports, in a fresh process."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "ray", "mlflow", "transformers", "datasets", "pandas", "matplotlib", "scipy")


def heavy_modules(code: str) -> list[str]:
    """Which of HEAVY a fresh process has imported after running `code`."""
    listing = f"import sys; print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{listing}"], capture_output=True, text=True, check=True
    )
    return list(eval(done.stderr.splitlines()[-1]))
