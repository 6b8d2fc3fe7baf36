"""How many workers go on with a stage when some are lost, and how they share its rows.

tests/faults has stages of two workers in a real Ray, and loses some.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import kept_sweep

from fope_lab.stages.training import Pretrain
from fope_lab.sweep import load_sweep
from trainers.distributed import sizes_to_go_on, with_size

SWEEP = kept_sweep.PRETRAIN.replace("256", "512, micro_batch_tokens: 128")
SWEEP += "    resources: {workers: 2}\n"


def test_fewer_workers_take_parts_as_small_as_all_would(tmp_path: Path) -> None:
    path = tmp_path / "workers.yaml"
    for given, expected in [("micro_batch_tokens: 128, ", 128), ("", 256)]:
        path.write_text(SWEEP.replace("micro_batch_tokens: 128, ", given))
        [spec] = [stage.spec for stage in load_sweep(path).stages]
        assert isinstance(spec, Pretrain)
        fewer = with_size(spec, 1)
        assert isinstance(fewer, Pretrain)
        assert fewer.train.micro_batch_tokens == expected
        assert fewer.resources.size == 1
        assert with_size(spec, 2) is spec
        for workers, rows, sizes in [(8, 16, [8, 4, 2, 1]), (4, 12, [4, 3, 2, 1]), (4, 10, [2, 1])]:
            train = dataclasses.replace(spec.train, batch_tokens=rows * 32)
            resources = dataclasses.replace(spec.resources, workers=workers)
            shared = dataclasses.replace(spec, train=train, resources=resources)
            assert sizes_to_go_on(shared) == sizes
