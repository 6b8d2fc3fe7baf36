"""The names of a stage's files in the store. Nothing here reads or writes a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StagePaths:
    """Where the files of one stage are: `folder` is `<store>/<kind>/<key>`."""

    folder: Path

    @property
    def store(self) -> Path:
        """The root folder of the store that holds the stage."""
        return self.folder.parents[1]

    @property
    def key(self) -> str:
        """The stage's key, which is its folder's name."""
        return self.folder.name

    @property
    def request(self) -> Path:
        """The file with the resolved configuration that was asked for."""
        return self.folder / "stage.yaml"

    @property
    def metrics(self) -> Path:
        """The folder of the metric segments."""
        return self.folder / "metrics"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / "checkpoint"

    @property
    def progress(self) -> Path:
        """The file with the latest progress, for the progress view alone."""
        return self.folder / "progress.json"

    @property
    def log(self) -> Path:
        """The log that all attempts append to."""
        return self.folder / "log.txt"

    @property
    def result(self) -> Path:
        """The file with the result of a finished stage."""
        return self.folder / "result.json"

    @property
    def done(self) -> Path:
        """The marker that the stage is finished."""
        return self.folder / "DONE"

    def segment(self, token: int, step: int) -> Path:
        """The metric segment that attempt `token` began after `step` steps."""
        return self.metrics / f"{token:04d}-{step:09d}.jsonl"

    def checkpoint(self, token: int, step: int) -> Path:
        """The folder of the checkpoint that attempt `token` saved after `step` steps."""
        return self.checkpoints / f"{token:04d}-{step:09d}"
