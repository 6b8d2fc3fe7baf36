"""The tokens that a training with length_groups computes: expected, and counted in its batches."""

from __future__ import annotations

import io
import itertools
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fope_lab.data.mixture import TrainingData
from fope_lab.data.tasks.algorithmic import SUBTASKS
from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.model.config import flops_per_token
from fope_lab.planning.estimate import estimate_plans
from fope_lab.planning.plan_table import print_plan
from fope_lab.planning.workload import workload_of
from fope_lab.store import Store
from fope_lab.sweep import load_sweep, plan
from fope_lab.sweep.cost import _widths, computed_widths, rows_at_once
from fope_lab.sweep.graph import Stage
from trainers.length_groups import length_groups

ROWS, LONGEST, BATCHES = 64, 20, 300


def training(folder: Path, subtask: str = "unique_copy", **changes: Any) -> Stage:
    length = SUBTASKS[subtask].tokens(LONGEST) + 5
    content = {
        "name": "grouped",
        "stages": {
            "pretrain": {
                "kind": "pretrain",
                "model": {"num_layers": 2, "num_heads": 1, "head_dim": 16},
                "embedding": "rope",
                "tokenizer": f"symbols:{subtask}",
                "data": {
                    "task": "algorithmic",
                    "subtask": subtask,
                    "longest": LONGEST,
                    "length": length,
                },
                "train": {
                    "tokens": 10 * ROWS * length,
                    "batch_tokens": ROWS * length,
                    "learning_rate": 1e-3,
                    **changes,
                },
            }
        },
    }
    file = folder / "grouped.yaml"
    file.write_text(yaml.safe_dump(content))
    [stage] = load_sweep(file).stages
    return stage


@pytest.mark.parametrize("groups", [1, 4, 7])
@pytest.mark.parametrize("subtask", sorted(SUBTASKS))
def test_expected_tokens_are_those_of_real_batches(
    tmp_path: Path, subtask: str, groups: int
) -> None:
    stage = training(tmp_path, subtask, length_groups=groups)
    spec: Any = stage.spec
    expected = sum(width * rows for width, rows in computed_widths(spec).items())
    tokenizer = load_tokenizer(f"symbols:{subtask}")
    data = TrainingData(spec.data, {}, tokenizer, batch_size=ROWS, seed=1)
    counts = [
        sum(
            part.input_ids.numel()
            for part in length_groups(data.batch(step), -(-ROWS // spec.train.length_groups))
        )
        for step in range(BATCHES)
    ]
    error = statistics.stdev(counts) / BATCHES**0.5
    if subtask == "addition":  # whose answers are counted at their longest
        assert 0.8 * expected < statistics.mean(counts) < expected
    else:
        assert statistics.mean(counts) == pytest.approx(expected, abs=4 * error + 0.01)
    assert expected < ROWS * spec.data.length


@given(
    shares=st.dictionaries(st.integers(1, 9), st.integers(1, 4), min_size=1, max_size=3),
    rows=st.integers(1, 5),
    size=st.integers(1, 5),
)
def test_widths_are_those_of_all_batches_that_there_are(
    shares: dict[int, int], rows: int, size: int
) -> None:
    total = sum(shares.values())
    expected: Counter[int] = Counter()
    for batch in itertools.product(shares, repeat=rows):
        probability = 1.0
        for end in batch:
            probability *= shares[end] / total
        ordered = sorted(batch, reverse=True)
        for first in range(0, rows, size):
            expected[ordered[first]] += probability * len(ordered[first : first + size])
    found = _widths(tuple((end, shares[end] / total) for end in sorted(shares)), rows, size)
    assert set(found) == set(shares)
    for end in shares:
        assert found[end] == pytest.approx(expected[end], abs=1e-9)


def test_the_plan_counts_what_is_computed(tmp_path: Path) -> None:
    whole, grouped = training(tmp_path), training(tmp_path, length_groups=4)
    spec: Any = grouped.spec
    widths = computed_widths(spec)
    model: Any = grouped.model_spec
    assert (
        grouped.cost.tokens == whole.cost.tokens == workload_of(whole).tokens == spec.train.tokens
    )
    assert grouped.cost.flops == pytest.approx(
        10 * sum(n * width * flops_per_token(model.model, width) for width, n in widths.items())
    )
    work = workload_of(grouped)
    assert (work.batches, work.flops) == (40, grouped.cost.flops)
    assert work.tokens == round(10 * sum(n * width for width, n in widths.items()))
    assert 0.5 * spec.train.tokens < work.tokens < 0.65 * spec.train.tokens
    assert grouped.cost.flops < 0.65 * (whole.cost.flops or 0)


def test_the_plan_says_that_its_numbers_are_the_most_where_trainings_may_end_early(
    tmp_path: Path,
) -> None:
    may = "1 training may end early, at train.stop_at_accuracy: tokens, FLOPs and time are at most"
    early = {"validate_every": 5, "stop_at_accuracy": 1.0}
    for changes, said in (({}, False), (early, True)):
        stage = training(tmp_path, **changes)
        store = Store(tmp_path / "store")
        planned = plan(load_sweep(tmp_path / "grouped.yaml"), store)
        console = Console(file=(out := io.StringIO()), width=200)
        print_plan(estimate_plans([planned], store), console)
        assert (may in out.getvalue()) is said
    with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
        attempt.finish({})
    print_plan(
        estimate_plans([plan(planned.sweep, store)], store),
        Console(file=(out := io.StringIO()), width=200),
    )
    assert "may end early" not in out.getvalue()


@pytest.mark.parametrize(("micro", "most"), [(None, 16), (8, 8), (40, 16)])
def test_a_group_is_no_larger_than_a_micro_batch(
    tmp_path: Path, micro: int | None, most: int
) -> None:
    length = training(tmp_path).spec.data.length  # type: ignore[attr-defined]
    changes = {} if micro is None else {"micro_batch_tokens": micro * length}
    stage = training(tmp_path, length_groups=4, **changes)
    spec: Any = stage.spec
    assert rows_at_once(spec) == most
    assert workload_of(stage).batches == 10 * ROWS // most


def test_a_source_whose_ends_are_not_known_counts_whole(tmp_path: Path) -> None:
    stage = training(tmp_path, length_groups=4)
    text = yaml.safe_load((tmp_path / "grouped.yaml").read_text())
    section = text["stages"]["pretrain"]
    section |= {"tokenizer": "byte", "data": {"task": "passkey", "length": 64}}
    section["train"] |= {"tokens": 6400, "batch_tokens": 640}
    (tmp_path / "grouped.yaml").write_text(yaml.safe_dump(text))
    [stage] = load_sweep(tmp_path / "grouped.yaml").stages
    assert computed_widths(stage.spec) == {64: pytest.approx(10.0)}  # type: ignore[arg-type]
