"""What a command finds around it: optional packages, environment variables, and the exit codes.

The base install reads sweeps and stores. What trains, runs on Ray or tracks with MLflow comes with
an extra: `pip install 'fope-lab[all]'`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterable

from fope_lab.config.problems import UserError

OK, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
"""The exit codes of `fope-lab`, and of `fope-lab run` on a cluster."""

EXTRA_OF = {
    "IPython": "notebook",
    "aiohttp": "cluster",
    "alembic": "tracking",
    "datasets": "train",
    "huggingface_hub": "train",
    "lm_eval": "lm-eval",
    "mlflow": "tracking",
    "pyarrow": "train",
    "ray": "cluster",
    "requests": "tracking",
    "safetensors": "train",
    "sqlalchemy": "tracking",
    "tokenizers": "train",
    "torch": "train",
    "transformers": "train",
    "urllib3": "tracking",
}
"""The extra that installs each package that the base install lacks, by the name to import."""
ALL = frozenset({"train", "cluster", "tracking"})
"""The extras that are in the extra `all`."""
RUN = ("torch", "ray", "mlflow")
"""What running a sweep needs: a package of each extra, the one that people know."""


class MissingPackageError(UserError):
    """A command needs a package that is not installed; the text names the extra."""


def require_packages(what: str, names: Iterable[str]) -> None:
    """Raise MissingPackageError if packages that `what` needs, such as "run", are not installed."""
    if missing := [name for name in names if not _is_installed(name)]:
        raise MissingPackageError(missing_packages(what, missing))


def missing_packages(what: str, names: Iterable[str]) -> str:
    missing = list(names)
    extras = list(dict.fromkeys(EXTRA_OF[name] for name in missing))
    are = "is" if len(missing) == 1 else "are"
    alone = f"'fope-lab[{','.join(extras)}]'"
    only = "" if len(extras) == len(ALL) else f", or for this alone {alone}"
    install = f"'fope-lab[all]'{only}" if set(extras) <= ALL else alone
    return f"{what} needs {', '.join(missing)}, which {are} not installed: pip install {install}"


def _is_installed(name: str) -> bool:
    with contextlib.suppress(ModuleNotFoundError):
        return importlib.util.find_spec(name) is not None
    return False


def default_store() -> str:
    """The folder of the stages: FOPE_LAB_STORE, or ./fope-store."""
    return os.environ.get("FOPE_LAB_STORE") or "fope-store"


def default_tracking_uri() -> str | None:
    """The MLflow server or database: MLFLOW_TRACKING_URI; None means mlflow.db in the store."""
    return os.environ.get("MLFLOW_TRACKING_URI")


def default_address() -> str:
    """The Ray cluster: RAY_ADDRESS, or a local one."""
    return os.environ.get("RAY_ADDRESS") or "local"
