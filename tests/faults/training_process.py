"""A small training as a process of its own: `python training_process.py FOLDER` trains to the end.

FOLDER holds the prepared data, and the store of the stage.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "trainers"))

from real_training import LENGTH, RealStage, assert_equal, prepare, pretraining

__all__ = ["RealStage", "assert_equal", "make", "prepare"]

STEPS = 80


def make(root: Path, data: dict[str, Path]) -> RealStage:
    """The stage of a folder, with all that a training can have; it draws positions, too."""
    stage = pretraining(
        STEPS,
        embedding="random-rope",
        micro_batch_tokens=3 * LENGTH,
        schedule="wsd",
        validate_every=5,
        validation_tokens=10 * LENGTH,
        select="best",
        checkpoint_every=3,
    )
    return RealStage(root, stage, data)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    roles = ("data.0", "validation.0")
    make(folder / sys.argv[2], {role: folder / role for role in roles}).attempt()
