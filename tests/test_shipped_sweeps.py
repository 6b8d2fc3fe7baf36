"""Every sweep that is shipped: it is right, its cost is known, what it shares is shared, the
paper's numbers find their models, and these can be made at full size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from shipped import FILES, ROOT, by_key, method, named, sweep_of

from fope_lab.config.cache import Cache
from fope_lab.config.shipped import paper_names
from fope_lab.evaluation.base import ModelEvaluation
from fope_lab.model import Decoder
from fope_lab.stages.training import TrainingConfig
from fope_lab.sweep import plan
from fope_lab.sweep.model_spec import learned_parameters_of


@pytest.mark.parametrize("file", FILES, ids=named)
def test_it_is_planned_and_its_cost_is_known(file: Path) -> None:
    sweep = sweep_of(file)
    planned = plan(sweep)
    assert planned.sweep.stages
    assert len({one.key for one in planned.sweep.stages}) == len(planned.sweep.stages)
    for name, stages in sweep.by_section.items():
        assert stages, name
    for stage in sweep.stages:
        if isinstance(stage.spec, TrainingConfig):
            assert stage.cost.parameters
            assert stage.cost.tokens == stage.spec.train.steps * stage.spec.train.batch_tokens
            assert stage.cost.flops
            assert stage.cost.memory
        elif isinstance(stage.spec, ModelEvaluation):
            assert stage.cost.parameters
            if stage.spec.forward_passes() is not None:
                assert stage.cost.tokens
                assert stage.cost.flops
                assert stage.cost.memory


def test_of_each_paper_table_there_is_a_sweep() -> None:
    at_full_size = [sweep_of(file) for file in FILES if file.parent.name != "mini"]
    assert {sweep.paper for sweep in at_full_size} - {None} == set(paper_names())


SHARED = {
    "fope/table4.yaml": "fope/figure1.yaml",
    "fope/table5.yaml": "fope/figure1.yaml",
    "fope/table6.yaml": "fope/figure1.yaml",
    "fope/table6_forms.yaml": "fope/figure1.yaml",
    "resonance/figure3.yaml": "resonance/table1.yaml",
    "resonance/figure4.yaml": "resonance/table2.yaml",
    "resonance/figure4_4k.yaml": "resonance/table2.yaml",
}
"""Files that train nothing of their own, and whose models theirs are."""


@pytest.mark.parametrize("file", SHARED)
def test_what_another_file_trains_is_not_trained_again(file: str) -> None:
    trained, others = (
        {stage.key for stage in sweep_of(ROOT / name).stages if stage.spec.trains}
        for name in (file, SHARED[file])
    )
    assert trained
    assert trained <= others


def test_the_ablations_share_their_common_models() -> None:
    def trained(name: str) -> set[str]:
        stages = sweep_of(ROOT / "fope" / f"{name}.yaml").stages
        return {stage.key for stage in stages if stage.spec.trains}

    books = trained("figure5")
    seeds = 3
    assert len(trained("figure6a") & books) == 3 * seeds  # RoPE, FoPE, official FoPE
    assert len(trained("figure6b") & books) == 2 * seeds  # RoPE, official FoPE with its own D
    assert len(trained("figure6c") & books) == 3 * seeds  # RoPE, FoPE with D = 64, official FoPE
    assert len(trained("figure6c") & trained("figure6b")) == 3 * seeds  # and FoPE with its own D
    assert len(trained("figure4") & trained("figure1")) == 6 * seeds


def test_every_model_can_be_made_at_its_full_size() -> None:
    seen = set()
    for stage in by_key().values():
        if not isinstance(stage.spec, TrainingConfig):
            continue
        model_spec = stage.model_spec
        assert model_spec is not None
        shape = (model_spec.model, json.dumps(method(model_spec.embedding.canonical())))
        if shape in seen:
            continue
        seen.add(shape)
        with torch.device("meta"):
            model = Decoder(
                model_spec.model, model_spec.embedding, train_length=model_spec.train_length, seed=0
            )
        modules = (model.position_embeddings, model.query_scales)
        learned = sum(p.numel() for each in modules for p in each.parameters())
        assert learned == learned_parameters_of(model_spec, Cache())
        assert stage.cost.parameters is not None
        assert sum(p.numel() for p in model.parameters()) == stage.cost.parameters.total
    assert len({model for model, _ in seen}) > 10
    assert len({one for _, one in seen}) > 10
