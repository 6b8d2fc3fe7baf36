"""What `import fope_lab` gives: the calls, and nothing heavy before the first of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from heavy_imports import heavy_modules
from report_samples import finish, write_plan

import fope_lab
from fope_lab.analysis import Analysis
from fope_lab.model import Decoder, ModelConfig, save_model
from fope_lab.store.records import StoreError
from fope_lab.store.root import Store
from fope_lab.sweep import SweepError

ONE: dict[str, object] = {"seeds": [0], "grid": {"pretrain.embedding": ["rope"]}}


def test_importing_it_imports_nothing_heavy() -> None:
    assert heavy_modules("import fope_lab; dir(fope_lab)") == []
    assert heavy_modules("import fope_lab; fope_lab.load_sweep; fope_lab.plan") == []


def test_every_call_is_listed_and_no_other() -> None:
    assert set(fope_lab.__all__) <= set(dir(fope_lab))
    for name in fope_lab.__all__:
        assert getattr(fope_lab, name) is not None
        assert f"    {name} " in (fope_lab.__doc__ or "")
    with pytest.raises(AttributeError, match="no attribute 'result'"):
        fope_lab.result  # noqa: B018


def test_a_path_is_as_good_as_a_sweep(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write_plan(tmp_path, ONE)
    finish(made, store)
    monkeypatch.setenv("FOPE_LAB_STORE", str(store.root))
    by_path = fope_lab.results(made.sweep.path)
    by_sweep = fope_lab.results(fope_lab.load_sweep(made.sweep.path), store)
    assert by_path.equals(by_sweep)
    assert len(by_path) > 0
    planned = fope_lab.plan(str(made.sweep.path), str(store.root))
    assert {planned.action(key) for key in planned.states} == {"cached"}


def test_planning_and_reading_results_make_no_store(tmp_path: Path) -> None:
    made = write_plan(tmp_path, ONE)
    nowhere = tmp_path / "nowhere"
    assert fope_lab.results(made.sweep, nowhere).empty
    assert set(fope_lab.plan(made.sweep, nowhere).states) == {s.key for s in made.sweep.stages}
    assert not nowhere.exists()


def test_a_finished_sweep_is_run_without_work(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    made = write_plan(tmp_path, ONE)
    finish(made, store)
    assert fope_lab.run(made.sweep, store) == {}
    assert "5 cached" in capsys.readouterr().out
    assert (store.root / "reports" / "sample" / "report.html").is_file()


def test_wrong_input_has_the_errors_of_the_commands(tmp_path: Path) -> None:
    made = write_plan(tmp_path, ONE)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: wrong\nstages: {a: {kind: pretran}}\n")
    with pytest.raises(SweepError, match="pretrain"):
        fope_lab.results(wrong, tmp_path / "store")
    with pytest.raises(StoreError, match="not a folder"):
        fope_lab.plan(made.sweep, wrong)
    with pytest.raises(SweepError, match="pretrain"):
        fope_lab.run(made.sweep, tmp_path / "store", redo=["pretran"])


def test_a_model_is_loaded_and_an_embedding_is_built(tmp_path: Path) -> None:
    config = ModelConfig(num_layers=1, num_heads=2, head_dim=16, vocab_size=272)
    model = Decoder(config, "rope", train_length=64)
    save_model(tmp_path / "model", model, context_length=64, tokenizer="byte")
    loaded = fope_lab.load_model(tmp_path / "model")
    ids = torch.arange(32)[None]
    torch.testing.assert_close(loaded(ids).logits, model.eval()(ids).logits)
    embedding = fope_lab.build_embedding("rope", head_dim=16, num_heads=2, train_length=64)
    assert isinstance(embedding, torch.nn.Module)


def test_the_analyses_are_there_by_name() -> None:
    assert {"decay"} <= set(fope_lab.analyses)
    for name, kind in fope_lab.analyses.items():
        assert issubclass(kind, Analysis)
        assert kind.name == name
