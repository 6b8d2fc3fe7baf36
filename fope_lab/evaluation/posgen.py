"""PosGen: whether a model goes on with a sequence, within the length it was trained at and beyond.

Wang et al., "Resonance RoPE", arXiv 2403.00071, §5: a token is right if it is the argmax, over all
of the model's vocabulary, after the right ones before it; "OOD accuracy" is of all tokens that lie
beyond the trained length.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fope_lab.data.problems import DataError
from fope_lab.data.recipe import parse_data
from fope_lab.data.tasks.posgen import Ids, period
from fope_lab.data.tasks.posgen_splits import SequenceSet
from fope_lab.data.tasks.posgen_task import PosGenTask
from fope_lab.evaluation.checkpoint import device_of, load_parent
from fope_lab.evaluation.hidden_states import final_states
from fope_lab.model import read_config
from fope_lab.store import StageFolder

if TYPE_CHECKING:
    from fope_lab.stages import PosGen
    from fope_lab.store import Attempt

LOGIT_ROWS = 512  # predictions whose logits are held at once, as in perplexity.py


@dataclass(frozen=True)
class PosGenResult:
    """Which tokens were right: `correct` (sequences, tokens), the first of which is token number
    `given` of its sequence. From token `trained_length` on is beyond."""

    correct: NDArray[np.bool_]
    given: int
    trained_length: int

    @property
    def by_position(self) -> dict[int, float]:
        """The share of sequences in which a token is right, by its position."""
        shares = self.correct.mean(0)
        return {self.given + i: float(share) for i, share in enumerate(shares)}

    @property
    def within(self) -> NDArray[np.float64]:
        """Each sequence's share of right tokens within the trained length; empty if it has none."""
        return self._shares(self.correct[:, : self._border])

    @property
    def beyond(self) -> NDArray[np.float64]:
        """The same of the tokens beyond it, whose mean is the OOD accuracy."""
        return self._shares(self.correct[:, self._border :])

    def _shares(self, correct: NDArray[np.bool_]) -> NDArray[np.float64]:
        return correct.mean(1) if correct.size else np.empty(0)

    @property
    def _border(self) -> int:
        return max(0, self.trained_length - self.given)


def _measured(name: str, shares: NDArray[np.float64]) -> dict[str, float]:
    """An accuracy with its standard error, by sequences: the tokens of one are not independent."""
    found = {name: float(shares.mean())} if len(shares) else {}
    if len(shares) > 1:
        found[f"{name}_stderr"] = float(shares.std(ddof=1)) / math.sqrt(len(shares))
    return found


@torch.inference_mode()
def posgen_correct(
    model: Any,
    sequences: Ids,
    *,
    given: int,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
) -> NDArray[np.bool_]:
    """Which tokens of sequences (count, length) a model tells from those before them.

    (count, length − given), from token number `given` on. `model.hidden(input_ids)` is
    (batch, length, …), and `model.head` of some of these states their logits. About `batch_tokens`
    are read at once; `progress` takes how many sequences are done.
    """
    device = device_of(model)
    size = max(1, batch_tokens // sequences.shape[1])
    found = np.empty((len(sequences), sequences.shape[1] - given), np.bool_)
    for first in range(0, len(sequences), size):
        ids = torch.from_numpy(sequences[first : first + size]).to(device)
        hidden = final_states(model, ids[:, :-1])[:, given - 1 :].flatten(0, 1)
        chosen = [model.head(states).argmax(-1) for states in hidden.split(LOGIT_ROWS)]
        right = torch.cat(chosen).view(len(ids), -1) == ids[:, given:]
        found[first : first + size] = right.cpu().numpy()
        progress(first + len(ids))
    return found


def run(stage: PosGen, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Log `posgen_ood_accuracy` and, within the trained length, `posgen_accuracy`, each with its
    standard error and step = length; `posgen_accuracy_by_position` with step = position.

    Raises DataError if the model was trained on another PosGen, has too few tokens for this one, or
    was trained at no less than its length.
    """
    trained_on = _trained_on(parents["from"])
    if trained_on and stage.sequence_set not in trained_on:
        raise DataError(_mismatch(stage.sequence_set, trained_on))
    config = read_config(parents["from"])
    if stage.modulus > config.model.vocab_size:
        raise DataError(
            f"modulus: found {stage.modulus}, needs at most the {config.model.vocab_size} tokens "
            "of the model"
        )
    trained_length = stage.trained_length or config.context_length
    if trained_length >= stage.length:
        raise DataError(
            f"length: found {stage.length}, needs more than the {trained_length} tokens that the "
            "model was trained at, or else no token is beyond them"
        )
    sequences = stage.sequence_set.sequences(stage.split, stage.count, stage.length)
    model, _ = load_parent(parents, stage.resources)
    correct = posgen_correct(
        model,
        sequences,
        given=stage.sequence_set.given,
        batch_tokens=stage.batch_tokens,
        progress=lambda done: attempt.progress(done, stage.count),
    )
    result = PosGenResult(correct, stage.sequence_set.given, trained_length)
    for position, accuracy in result.by_position.items():
        attempt.log(position, {"posgen_accuracy_by_position": accuracy})
    measured = _measured("posgen_ood_accuracy", result.beyond)
    measured |= _measured("posgen_accuracy", result.within)
    attempt.log(stage.length, measured)
    return {
        **dataclasses.asdict(stage.sequence_set),
        "split": stage.split,
        "count": stage.count,
        "length": stage.length,
        "trained_length": trained_length,
        **measured,
        "chance": 1 / stage.modulus,
        "period": period(stage.subtask, stage.modulus, stage.j, stage.k),
        "trained_on_posgen": bool(trained_on),
    }


def _trained_on(checkpoint: Path) -> list[SequenceSet]:
    """The PosGen that the stage which left a checkpoint trained on; none if that is not known."""
    if not checkpoint.is_dir():  # a model of the hub
        return []
    request = StageFolder(checkpoint.parent.parent).request() or {}
    try:
        data = parse_data(request["config"]["data"], checkpoint)
    except (KeyError, TypeError, DataError):
        return []
    return [one.task.sequence_set for one in data.mix if isinstance(one.task, PosGenTask)]


def _mismatch(asked: SequenceSet, trained_on: list[SequenceSet]) -> str:
    """What to say of a task that the model has not learnt."""
    theirs = dataclasses.asdict(trained_on[0])
    different = [
        f"{name}: found {value}, and the model was trained with {theirs[name]}"
        for name, value in dataclasses.asdict(asked).items()
        if value != theirs[name]
    ]
    return "; ".join(different)
