"""What stages of several workers ask for: in a sweep file, of a machine, of Tune."""

from __future__ import annotations

from pathlib import Path

import kept_sweep
import pytest
from sections import read_section

from fope_lab.config.problems import ConfigError
from fope_lab.evaluation.analysis import AnalysisStage
from fope_lab.orchestration.nodes import NodeType, ResourcesError, placement, require_nodes
from fope_lab.orchestration.trial import SLOT, WORKERS
from fope_lab.planning.schedule import amounts, amounts_text
from fope_lab.stages.base import Resources
from fope_lab.sweep import SweepError, load_sweep

SWEEP = (
    kept_sweep.PRETRAIN.replace("batch_tokens: 256", "batch_tokens: 512")
    + """\
    resources: {TRAINING}
  passkey: {kind: passkey, from: pretrain, lengths: [32], form: symbolic, resources: {EVALUATION}}
"""
)


def sweep_of(folder: Path, training: str, evaluation: str = "{}") -> Path:
    path = folder / "sweep.yaml"
    path.write_text(SWEEP.replace("{TRAINING}", training).replace("{EVALUATION}", evaluation))
    return path


@pytest.mark.parametrize(
    ("training", "evaluation", "told"),
    [
        ("{workers: 3}", "{}",
         "pretrain.train.batch_tokens: found 512, 16 sequences, which 3 workers can't share; "
         "the nearest are 480 and 576"),
        ("{workers: 2, gpus: 1}", "{}",
         "pretrain.resources.workers: found 2 for 1 GPU; several workers have one each"),
        ("{workers: 2, gpus: 4}", "{}",
         "pretrain.resources.workers: found 2 for 4 GPUs; each worker has one at most"),
        ("{gpus: 1.5}", "{}",
         "pretrain.resources.gpus: found 1.5, needs a fraction of one GPU or a whole number "
         "of them"),
        ("{workers: 2, strategy: fdsp}", "{}",
         "pretrain.resources.strategy: found 'fdsp'; did you mean 'fsdp'? (allowed: ddp, fsdp)"),
        ("{}", "{workers: 2, strategy: fsdp}",
         "passkey.resources.strategy: found 'fsdp': only a training shares out its model"),
    ],
)  # fmt: skip
def test_wrong_resources(tmp_path: Path, training: str, evaluation: str, told: str) -> None:
    with pytest.raises(SweepError) as error:
        load_sweep(sweep_of(tmp_path, training, evaluation))
    assert str(error.value).partition("stages.")[2] == told


@pytest.mark.parametrize(
    ("given", "size"),
    [({}, 1), ({"workers": 2}, 2), ({"gpus": 0.5}, 1), ({"gpus": 4}, 4), ({"gpus": 1}, 1)],
)
def test_a_worker_for_each_gpu_unless_told_otherwise(given: dict[str, float], size: int) -> None:
    assert read_section(Resources, given).size == size


@pytest.mark.parametrize(("given", "name"), [({"workers": 2}, "workers"), ({"gpus": 2}, "gpus")])
def test_work_that_can_not_be_shared_has_one_worker(given: dict[str, int], name: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_section(AnalysisStage, {"analysis": "harmonics", "resources": given})
    assert str(error.value) == (
        f"resources.{name}: found 2, needs at most 1: only trainings and evaluations of a model"
        " have several workers"
    )


def test_a_machine_must_hold_all_workers_of_a_stage(tmp_path: Path) -> None:
    stages = load_sweep(sweep_of(tmp_path, "{workers: 4, gpus: 4, cpus: 2}")).stages
    require_nodes(stages, [NodeType("this machine", {"CPU": 8, "GPU": 4, "memory": 1e9}, 1)])
    with pytest.raises(ResourcesError) as error:
        require_nodes(stages, [NodeType("this machine", {"CPU": 7, "memory": 1e9}, 1)])
    assert str(error.value) == (
        "pretrain[seed=0] needs 2 CPU, 1 GPU for each of its 4 workers: this machine has 7 CPU,"
        " 0 GPU"
    )


def test_the_nodes_that_may_come_must_hold_all_workers_of_a_stage(tmp_path: Path) -> None:
    stages = load_sweep(sweep_of(tmp_path, "{workers: 4, gpus: 4, cpus: 0.1}")).stages
    head, small = NodeType("node 10.0.0.1", {"CPU": 8}, 1), {"CPU": 0.3, "GPU": 3}
    require_nodes(stages, [head, NodeType("small", small, 2)])
    with pytest.raises(ResourcesError) as error:
        require_nodes(stages, [NodeType("small", small, 1), NodeType("cpu", {"CPU": 64}, 9)])
    assert str(error.value) == (
        "pretrain[seed=0] needs 0.1 CPU, 1 GPU for each of its 4 workers: small has 0.3 CPU, 3 GPU;"
        " cpu has 64 CPU, 0 GPU, 9 at most"
    )


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"analysis": "harmonics", "timeout": 0}, "timeout: found 0, needs more than 0"),
        ({"analysis": "harmonics", "timeout": 5},
         "timeout: found 5: this analysis tells no progress while it works"),
    ],
)  # fmt: skip
def test_a_wrong_timeout(section: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_section(AnalysisStage, section)
    assert str(error.value) == told


def test_only_a_single_worker_is_in_the_trials_own_placement_group() -> None:
    one, several = Resources(cpus=2, gpus=0.5), Resources(workers=2)
    slot = placement({SLOT: amounts(one), WORKERS: one.size}, "127.0.0.1")
    assert slot.bundles == [{"CPU": 2, "GPU": 0.5}]
    slot = placement({SLOT: amounts(several), WORKERS: several.size}, "127.0.0.1")
    assert slot.required_resources == {"node:127.0.0.1": 0.001}


def test_what_ray_has_besides_is_not_named() -> None:
    group = "d74f9044a73a54826226bd5c84e101000000"
    own = ["memory", "object_store_memory", "node:10.0.0.1", "node:__internal_head__"]
    own += [f"CPU_group_{group}", f"CPU_group_0_{group}", f"bundle_group_{group}"]
    there = {"CPU": 64.0, **dict.fromkeys(own, 1.0), "GPU": 0.0, "fast_group_1": 2.0}
    assert amounts_text(there) == "64 CPU, 0 GPU, 2 fast_group_1"
