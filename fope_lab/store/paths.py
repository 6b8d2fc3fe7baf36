"""The names of a stage's files in the store. Nothing here reads or writes a file."""

from __future__ import annotations

from pathlib import Path


class StagePaths:
    """Where the files of one stage are: `folder` is `<store>/<kind>/<key>`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.key = folder, folder.name
        self.name = f"{folder.parent.name}/{folder.name}"  # the kind and the key
        self.request = folder / "stage.yaml"  # the resolved configuration that was asked for
        self.metrics = folder / "metrics"  # a segment for each attempt and checkpoint interval
        self.checkpoints = folder / "checkpoint"
        self.progress = folder / "progress.json"  # the latest progress, for the progress view alone
        self.log = folder / "log.txt"  # all attempts append to it
        self.result = folder / "result.json"  # written when the stage is finished
        self.done = folder / "DONE"  # the marker that it is

    def result_of(self, token: int) -> Path:
        """The result that attempt `token` wrote, until DONE says that it is the stage's."""
        return self.folder / f".result-{token:04d}.json"

    def results(self) -> list[Path]:
        """The result, and those of attempts that stalled or died before it got its name."""
        return [self.result, *sorted(self.folder.glob(".result-*.json"))]

    def set_aside(self, token: int) -> Path:
        """Where attempt `token` moved the output that was there before it."""
        return self.folder / "set-aside" / f"{token:04d}"

    @property
    def store(self) -> Path:
        """The root folder of the store that holds the stage."""
        return self.folder.parents[1]

    def segment(self, token: int, step: int) -> Path:
        """The metric segment that attempt `token` began after `step` steps."""
        return self.metrics / f"{token:04d}-{step:09d}.jsonl"

    def checkpoint(self, token: int, step: int) -> Path:
        """The folder of the checkpoint that attempt `token` saved after `step` steps."""
        return self.checkpoints / f"{token:04d}-{step:09d}"
