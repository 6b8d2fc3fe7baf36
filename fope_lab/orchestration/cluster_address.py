"""The address of a Ray cluster, whether one answers there, and the environment that a run needs.

Ray itself would search for minutes. It reads the variables when it is imported: not here.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import secrets
import socket
import sys
import tempfile
from pathlib import Path

from fope_lab.config.problems import UserError

LOCAL = "local"
"""The address of a private Ray cluster that starts and ends with the run."""
FORMS = "local, auto, HOST:PORT or ray://HOST:PORT"
_HOST_AND_PORT = re.compile(r"(?:ray://)?(?P<host>[^\s/:?#@]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]+)")
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a client begins HTTP/2, which Ray speaks: the preface, and empty SETTINGS. A port that only
takes connections may be another server, or a head that was stopped."""
_SETTINGS = 4  # the type of the frame that an HTTP/2 server sends first
_SECONDS = 5.0
RAY_FOLDER = "fope-ray-"
"""How the name of the folder of a Ray of our own begins."""
_SOCKET = f"/{RAY_FOLDER}12345678/r/session_2026-01-31_12-00-00_123456_1234567/sockets/plasma_store"
MOST_BYTES = 107 - len(_SOCKET)
"""The longest path of a folder in which Ray's sockets fit: Linux allows their paths 107 bytes."""
_LIMITS = (
    (resource.RLIMIT_AS, "on virtual memory (ulimit -v)", 15),
    (resource.RLIMIT_FSIZE, "on the size of a file (ulimit -f)", 8),
)
"""The limits under which Ray crashes without a word, and the GiB that it needs: with 24 GiB of
memory it started with 16 GB of virtual memory and not with 8; its object store is a file there."""


class ClusterError(UserError):
    """No Ray cluster answers at the address, or none can be started here."""


def checked_address(address: str) -> str:
    """The address, if it has one of FORMS. Raises ClusterError."""
    if address not in (LOCAL, "auto"):
        _host_and_port(address)
    return address


def require_cluster(address: str) -> None:
    """Raises ClusterError in seconds if no Ray answers at HOST:PORT, or can't start here."""
    if address == LOCAL:
        for variable in [v for v in ("RAY_TMPDIR", "TMPDIR") if os.environ.get(v)][:1]:
            folder = Path(os.environ[variable])
            if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
                wrong = "can't be written" if folder.is_dir() else "is not a folder"
                keeps = "Ray keeps its files there"
                raise ClusterError(f"{variable} is {folder}, which {wrong}; {keeps}")
        for limit, name, least in _LIMITS:
            allowed = resource.getrlimit(limit)[0]
            if allowed != resource.RLIM_INFINITY and allowed < least * 2**30:
                found = f"{allowed / 2**30:.1f} GiB"
                raise ClusterError(f"the limit {name} is {found}; Ray needs {least} GiB to start")
    if address in (LOCAL, "auto"):
        return
    where = f"at {address} (--address or RAY_ADDRESS)"
    try:
        is_ray = answers_as_ray(address)
    except TimeoutError as error:
        raise ClusterError(f"nothing answers {where} within {_SECONDS:g} s") from error
    except OSError as error:
        raise ClusterError(f"no Ray cluster answers {where}: {error.strerror or error}") from error
    if not is_ray:
        raise ClusterError(f"what answers {where} is not Ray; the port of Ray's head is often 6379")


def answers_as_ray(address: str) -> bool:
    """Whether Ray may be what answers at HOST:PORT. Raises OSError if nothing does in seconds."""
    with socket.create_connection(_host_and_port(address), timeout=_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return True  # Ray has the certificates
        connection.settimeout(_SECONDS)
        connection.sendall(_PREFACE)
        answer = connection.recv(9)
    return len(answer) > 3 and answer[3] == _SETTINGS


def _host_and_port(address: str) -> tuple[str, int]:
    match = _HOST_AND_PORT.fullmatch(address)
    if match is None or not 0 < int(match["port"][:6]) < 2**16:
        dashboard = address.startswith(("http://", "https://"))
        advice = "; a dashboard's URL is for `fope-lab submit`" if dashboard else ""
        raise ClusterError(
            f"found {address!r} as the address of a Ray cluster (--address or RAY_ADDRESS),"
            f" needs {FORMS}{advice}"
        )
    return match["host"].strip("[]"), int(match["port"])


def private_folder() -> Path:
    """A new folder for the files of a Ray of our own, which no other user can read.

    It is below RAY_TMPDIR or TMPDIR, or where their paths are too long for Ray's sockets, below
    /tmp. Raises ClusterError if there is no room for it.
    """
    given = [os.environ.get("RAY_TMPDIR"), tempfile.gettempdir(), "/tmp", "/var/tmp"]
    fitting = [one for one in given if one and len(os.fsencode(one)) <= MOST_BYTES]
    for place in fitting:
        with contextlib.suppress(OSError):
            return Path(tempfile.mkdtemp(prefix=RAY_FOLDER, dir=place))
    tried = ", ".join(dict.fromkeys(fitting))
    raise ClusterError(f"Ray's files need a folder that can be written: tried {tried}")


RAY_DEFAULTS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths stay relative to the user's folder
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # results are in the store
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the controller handles signals
    "RAY_AIR_NEW_OUTPUT": "0",  # live_view.py prints the progress
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # snapshots are never read
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # each watcher would be another process
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # one process per CPU, none of them used
}
"""What a run changes about Ray; values that the user has set take precedence."""


def prepare_environment(address: str) -> None:
    """Set the variables that a run at `address` needs, except those that the user has set."""
    for name, value in RAY_DEFAULTS.items():
        os.environ.setdefault(name, value)
    if address == LOCAL and "RAY_AUTH_MODE" not in os.environ:
        # Nobody else can join. Ray would write a token into the home folder, for later clusters.
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        if "ray" in sys.modules:  # a plug-in or a notebook has imported it: it read them then
            from ray._raylet import Config

            Config.initialize("")
