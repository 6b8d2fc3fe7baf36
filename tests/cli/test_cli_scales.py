"""`fope-lab scales`: every model size, and FLOPs and memory of the step that is asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fope_lab.cli import main
from fope_lab.model import SCALES, flops_per_token
from fope_lab.model.memory import reading_memory, training_memory


def rows(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, dict[str, Any]]:
    assert main(["scales", "--json", *options]) == 0
    return {row["scale"]: row for row in json.loads(capsys.readouterr().out)["scales"]}


def test_every_scale_counts_its_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys)
    assert list(found) == list(SCALES)
    named = {name: round(found[name]["named"] / 1e6, 1) for name in ("60m", "180m", "1.2b")}
    assert named == {"60m": 59.3, "180m": 185.7, "1.2b": 1176.8}
    for row in found.values():
        assert row["total"] == row["body"] + row["head"] + row["embedding"]


def test_a_step_costs_what_its_sizes_say(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--length", "512", "--batch", "8", "--precision", "bfloat16"]
    found = rows(capsys, *options, "--gradient-checkpointing")["180m"]
    config, sizes = SCALES["180m"], {"batch": 8, "length": 512, "precision": "bfloat16"}
    assert found["flops"] == 8 * 512 * flops_per_token(config, 512)
    step = training_memory(config, **sizes, gradient_checkpointing=True)
    assert (found["memory"], found["activations"]) == (step.peak, step.activations)
    assert found["memory_reading"] == reading_memory(config, **sizes).peak
    assert found["memory"] < rows(capsys, *options)["180m"]["memory"]


def test_the_table_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scales", "--length", "1024"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, line in zip(SCALES, lines[1:], strict=False):
        assert line.startswith(name)
        assert line.count("GiB") == 2
    assert "1,176.8M" in next(line for line in lines if line.startswith("1.2b"))
    assert "–" in next(line for line in lines if line.startswith("gemma-2b"))
    assert "1 × 1024 tokens in float32" in " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--length", "0"], "argument --length: found '0', needs a whole number, at least 1"),
        (["--batch", "1.5"], "argument --batch: found '1.5'"),
        (
            ["--precision", "float16"],
            "argument --precision: found 'float16'; did you mean 'bfloat16'? "
            "(allowed: float32, bfloat16)",
        ),
    ],
)
def test_wrong_sizes_are_refused(
    capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["scales", *options])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
