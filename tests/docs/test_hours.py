"""The page of hours has the plan's numbers beside the printed ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.generate.hours import PAPERS, of_sweeps, of_trainings, planned
from docs.generate.shipped import ROOT
from fope_lab.cli import main
from fope_lab.config.devices import known_devices
from fope_lab.config.options import nested
from fope_lab.config.problems import ConfigError
from fope_lab.config.shipped import paper_names
from fope_lab.report.compare.published import PublishedHours, load_published

A3 = [
    ("fope/figure1.yaml", "60m", 10),
    ("fope/figure1.yaml", "180m", 20),
    ("fope/figure1.yaml", "1.2b", 100),
    ("fope/table1.yaml", None, 4),
]
"""What A.3 of FoPE's paper prints, by sweep and size."""


def rows(table: str) -> dict[tuple[str, str], list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {(row[0].strip("`"), row[1]): row for row in cells[2:]}


@pytest.mark.parametrize(("file", "scale", "hours"), A3)
def test_the_plan_stands_beside_what_is_printed(
    file: str, scale: str | None, hours: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", str(ROOT / "sweeps" / file), "--store", str(tmp_path)]
    main([*command, "--device", "a6000", "--json"])
    stages = json.loads(capsys.readouterr().out)["stages"]
    seconds = [
        stage["seconds"]
        for stage in stages
        if stage["kind"] in ("pretrain", "finetune")
        and stage["axes"].get("pretrain.model.scale") == scale
    ]
    row = rows(of_trainings(""))[file, scale or "each"]
    assert row[3:5] == [f"{hours:g}", f"{max(seconds) / 3600:.1f}"]
    assert row[5] == f"{0.35 * max(seconds) / 3600 / hours:.0%}"


def test_each_printed_number_has_a_row() -> None:
    assert len(rows(of_trainings(""))) == len(A3)


def test_every_sweep_that_needs_gpus_has_a_row() -> None:
    names = {line.split("`")[1] for line in of_sweeps("").splitlines()[2:]}
    assert names == {one.name for one in planned() if one.on_gpus}
    folders = {name.partition("/")[0] for name in names}
    assert folders == set(PAPERS)
    assert "fope/figures.yaml" not in names  # analyses on a CPU


def test_what_does_not_fit_is_said() -> None:
    [one] = [one for one in planned() if one.name == "resonance/figure4.yaml"]
    assert one.device == "a100-40gb"
    assert one.gpu_hours(one.trainings) == "2 do not fit"


def test_gpu_hours_are_the_sum_of_the_forecasts() -> None:
    [one] = [one for one in planned() if one.name == "fope/figure6b.yaml"]
    hours = [one.plan.forecasts[stage.key].seconds or 0 for stage in one.trainings]
    assert one.gpu_hours(one.trainings) == f"{4 * sum(hours) / 3600:,.0f}"
    assert one.gpu_hours([]) == "–"


def test_the_gpus_of_the_papers_are_known() -> None:
    for name in paper_names():
        printed = load_published(name).hours
        if printed is not None and printed.device is not None:
            assert printed.device in known_devices()
            assert printed.device.split("-")[0].upper() in printed.hardware
            assert str(printed.gpus) == printed.hardware.split()[0]


@pytest.mark.parametrize("wrong", [{"gpus": 0}, {"trainings": [{"hours": 0}]}, {"days": 3}])
def test_a_wrong_entry_is_refused(wrong: dict[str, object]) -> None:
    entry = {"place": "§1", "hardware": "a GPU", "gpus": 1} | wrong
    with pytest.raises(ConfigError):
        nested(PublishedHours).parse(entry, Path())
