"""PosGen's accuracy: models of known ability, and a stage from its checkpoint to its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from measured import measured, ran
from models import Logits
from scipy import stats
from sections import read_section
from torch import Tensor

from fope_lab.data.problems import DataError
from fope_lab.data.tasks.posgen import SequenceSet, Subtask
from fope_lab.evaluation.posgen import PosGen
from fope_lab.evaluation.scoring.exact_match import correct_tokens
from fope_lab.model import Decoder, ModelConfig, load_model, save_model
from fope_lab.store.root import Store

VOCABULARY = 31


class Follower(Logits):
    """Adds up the tokens that a subtask says, but at positions from `until` on one too many."""

    def __init__(self, subtask: str, modulus: int = 17, until: int = 10**9) -> None:
        super().__init__()
        self.subtask, self.modulus, self.until = subtask, modulus, until

    def hidden(self, ids: Tensor) -> Tensor:
        logits = torch.zeros(*ids.shape, VOCABULARY)
        for last in range(3, ids.shape[1]):
            place = last + 1  # the token that is predicted
            far = {"recursive": place - 4, "cot": 0, "semi_recursive": (place - 4) // 2}
            read = [last, last - 1, last - 2, far[self.subtask]]
            follows = (ids[:, read].sum(1) + (place >= self.until)) % self.modulus
            logits[:, last].scatter_(1, follows[:, None], 1.0)
        return logits


@pytest.mark.parametrize("subtask", get_args(Subtask))
@pytest.mark.parametrize("batch_tokens", [1, 300, 10**6])
def test_a_model_that_follows_the_rule_is_always_right(subtask: Any, batch_tokens: int) -> None:
    x = SequenceSet(subtask=subtask).sequences("test", 11, 90)
    done: list[int] = []
    correct = correct_tokens(
        Follower(subtask), x, given=4, batch_tokens=batch_tokens, progress=done.append
    )
    assert correct.shape == (11, 86)
    assert correct.all()
    assert done[-1] == 11
    assert done == sorted(set(done))


@pytest.mark.parametrize("until", [4, 5, 33, 63, 64, 65, 89, 90])
def test_a_token_is_right_up_to_where_the_model_follows(until: int) -> None:
    x = SequenceSet(subtask="recursive").sequences("test", 5, 90)
    correct = correct_tokens(Follower("recursive", until=until), x, given=4)
    assert (correct == (np.arange(4, 90) < until)).all()


# As a stage


def checkpoint_of(tmp_path: Path, data: Any = None) -> Path:
    """A tiny untrained model, as a training on `data` at 32 tokens leaves it in a store."""
    folder = Store(tmp_path / "store").folder("pretrain", "model")
    config = ModelConfig(num_layers=1, num_heads=2, head_dim=8, vocab_size=17)
    model = Decoder(config, "rope", train_length=16, seed=0)

    def write(directory: Path) -> None:
        save_model(directory, model, context_length=32, tokenizer="byte")

    request = {} if data is None else {"config": {"data": data}}
    with folder.begin("test", request) as attempt:
        attempt.writer.save_checkpoint(1, write)
        attempt.finish({})
    checkpoint = folder.checkpoint()
    assert checkpoint is not None
    return checkpoint.path


def evaluated(tmp_path: Path, checkpoint: Path, **options: Any) -> tuple[dict[str, Any], Any]:
    """The result of a stage, and its rows by step."""
    section = {"kind": "posgen", "from": "m", "subtask": "cot", "length": 48, "count": 20}
    stage = read_section(PosGen, {**section, **options})
    folder, result = ran(stage, tmp_path / "store", {"from": checkpoint})
    progress = folder.progress()
    assert progress is not None
    assert progress["total"] == stage.count
    rows: dict[str, dict[int, float]] = {}
    for row in folder.rows():
        for name, value in row.values.items():
            rows.setdefault(name, {})[row.step] = value
    return result, rows


MIX = [
    {"corpus": {"type": "python-docs"}},
    {"task": "posgen", "subtask": "cot", "examples": 100, "weight": 0.3},
]


def test_a_stage_says_all_that_its_numbers_depend_on(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, {"length": 32, "mix": MIX})
    result, rows = evaluated(tmp_path, checkpoint)
    names = ("posgen_ood_accuracy", "posgen_accuracy")
    assert all(metric["chance"] == 1 / 17 for metric in result["metrics"])
    values = {name: measured(result)[name, None] for name in names}
    errors = {m["name"]: m["stderr"] for m in result["metrics"] if m["name"] in names}
    assert result["recorded"] == {
        "subtask": "cot",
        "modulus": 17,
        "j": 1,
        "k": 3,
        "official_leaky": False,
        "split": "test",
        "count": 20,
        "length": 48,
        "trained_length": 32,
        "chance": 1 / 17,
        "trained_on_posgen": True,
    }
    by_position = rows.pop("posgen_accuracy_by_position")
    assert sorted(by_position) == list(range(4, 48))
    within, beyond = (
        np.mean([value for place, value in by_position.items() if (place >= 32) == out])
        for out in (False, True)
    )
    assert values == pytest.approx({names[0]: beyond, names[1]: within})
    assert rows == {
        **{name: {48: values[name]} for name in names},
        **{f"{name}_stderr": {48: errors[name]} for name in names},
    }
    assert all(0 < error < 0.1 for error in errors.values())


def test_the_standard_error_is_of_sequences(tmp_path: Path) -> None:
    """… whose tokens are not independent; of one sequence there is none."""
    checkpoint = checkpoint_of(tmp_path)
    result, _ = evaluated(tmp_path, checkpoint)
    x = SequenceSet(subtask="cot").sequences("test", 20, 48)
    correct = correct_tokens(load_model(checkpoint), x, given=4)
    errors = {metric["name"]: metric["stderr"] for metric in result["metrics"]}
    assert errors["posgen_accuracy"] == pytest.approx(stats.sem(correct[:, :28].mean(1)))
    assert errors["posgen_ood_accuracy"] == pytest.approx(stats.sem(correct[:, 28:].mean(1)))


def test_one_sequence_has_no_standard_error(tmp_path: Path) -> None:
    result, _ = evaluated(tmp_path, checkpoint_of(tmp_path), count=1)
    assert ("posgen_accuracy", None) in measured(result)
    assert all(metric["stderr"] is None for metric in result["metrics"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"modulus": 7}, "modulus: found 7, and the model is trained with 17"),
        (
            {"subtask": "recursive", "official_leaky": True},
            "subtask: found recursive, and the model is trained with cot; "
            "official_leaky: found True, and the model is trained with False",
        ),
        ({"k": 2}, "k: found 2, and the model is trained with 3"),
        ({"length": 32}, "length: found 32, needs more than the 32 tokens"),
    ],
)
def test_another_posgen_than_the_model_was_trained_on_is_an_error(
    tmp_path: Path, options: dict[str, Any], expected: str
) -> None:
    checkpoint = checkpoint_of(tmp_path, {"length": 32, "mix": MIX})
    with pytest.raises(DataError) as caught:
        evaluated(tmp_path, checkpoint, **options)
    assert str(caught.value).startswith(expected)


def test_a_model_has_too_few_tokens(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="modulus: found 18, needs at most the 17 tokens"):
        evaluated(tmp_path, checkpoint_of(tmp_path), modulus=18)
