"""Finished, failed and missing stages in a real store, with numbers that tests choose."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from fope_lab.evaluation.retrieval import Passkey
from fope_lab.report import Report, RunLinks, build_report
from fope_lab.report.render.terminal import print_report, report_text
from fope_lab.stages.metric import Measurement, Metric, ResultRecord
from fope_lab.store.root import Store
from fope_lab.sweep import Plan, Sweep, load_sweep, plan
from fope_lab.sweep.graph import Stage

Numbers = Callable[[Stage, int | None], float]
"""(stage, context length, or None for a training's loss) → what the stage measured."""

BASE: dict[str, Any] = {
    "name": "sample",
    "description": "Four embeddings at 64 tokens, read past it.",
    "seeds": [0, 1, 2],
    "stages": {
        "pretrain": {
            "kind": "pretrain",
            "model": {"num_layers": 2, "num_heads": 2, "head_dim": 16},
            "embedding": "rope",
            "data": {"corpus": "python-docs", "length": 64},
            "train": {"tokens": 64000, "batch_tokens": 640, "learning_rate": 6e-4},
        },
        "perplexity": {
            "kind": "perplexity",
            "from": "pretrain",
            "corpus": "python-docs",
            "lengths": [32, 64, 128, 256],
            "tokens": 20000,
        },
        "passkey": {
            "kind": "passkey",
            "from": "pretrain",
            "lengths": [32, 64, 128],
            "trials": 200,
            "form": "symbolic",
        },
    },
    "grid": {"pretrain.embedding": ["nope", "alibi", "rope", "fope"]},
}
QUALITY = {"rope": 0.0, "fope": 0.05, "alibi": 0.1, "nope": 0.4}


def typical_numbers(stage: Stage, length: int | None) -> float:
    """Smooth made-up numbers that differ by embedding, length and seed."""
    name = stage.embedding or ""
    # No two embeddings differ by the same number under each seed.
    own = 3 * len(name) + {"fope": 0.1, "nope": 0.2}.get(name, 0.0)
    wobble = 0.02 * math.sin(17 * (stage.seed or 0) + own)
    offset = QUALITY.get(stage.embedding or "", 0.2)
    if length is None:
        return 2.0 + offset + wobble
    beyond = max(math.log2(length / 64), 0.0)
    if stage.kind == "passkey":
        slope = {"fope": 0.1, "rope": 0.45}.get(stage.embedding or "", 0.3)
        return min(1.0, max(0.0, 0.98 - slope * beyond + wobble))
    slope = {"rope": 0.9, "nope": 0.7, "fope": 0.2}.get(stage.embedding or "", 0.0)
    return math.exp(2.0 + offset + wobble + slope * beyond)


def finish(
    plan: Plan,
    store: Store,
    numbers: Numbers = typical_numbers,
    skip: Iterable[str] = (),
    fail: dict[str, str] | None = None,
) -> None:
    """Do every stage of `plan` in the store, but those named in `skip` and what follows them."""
    fail = fail or {}
    absent = set()
    for stage in plan.sweep.stages:
        if stage.label in skip or absent & set(stage.parents.values()):
            absent.add(stage.key)
            continue
        if store.folder(stage.kind, stage.key).is_done():  # another sweep shares it
            continue
        attempt = store.folder(stage.kind, stage.key).begin("test", {"config": stage.config})
        with contextlib.suppress(_MadeToFailError), attempt:
            if stage.label in fail:
                absent.add(stage.key)
                raise _MadeToFailError(fail[stage.label])
            _work(stage, attempt, numbers)


def _work(stage: Stage, attempt: Any, numbers: Numbers) -> None:
    if stage.spec.trains:
        last = numbers(stage, None)
        steps = stage.spec.train.steps
        for step in range(10, steps + 1, 10):
            loss = last + 3 * math.exp(-5 * step / steps)
            attempt.writer.log(step, {"loss": loss, "learning_rate": 6e-4, "gradient_norm": 1.0})
        recorded = {"steps": steps, "seconds": 1.5, "parameters": {"body": 99}}
        attempt.finish(result(Measurement(name="loss", value=last), **recorded))
    elif stage.kind == "perplexity":
        measured = []
        for length in stage.spec.lengths:
            value = numbers(stage, length)
            loss = math.log(value) if value > 0 else value
            values = {"perplexity_by_length": value, "loss_by_length": loss}
            values["bits_per_byte_by_length"] = loss / math.log(2)
            measured += [Measurement(name=n, x=length, value=v) for n, v in values.items()]
        tokens = {str(length): 19999 for length in stage.spec.lengths}
        attempt.finish(result(*measured, method="chunked", stride=None, tokens=tokens))
    elif stage.kind == "passkey":
        measured = [
            Measurement(name="passkey_accuracy_by_length", x=length, value=numbers(stage, length))
            for length in stage.spec.lengths
        ]
        trials = {str(length): 200 for length in stage.spec.lengths}
        attempt.finish(result(*measured, form="symbolic", trials=trials))
    else:
        attempt.finish(result(**OF_KIND.get(stage.kind, {})))


OF_KIND: dict[str, dict[str, Any]] = {
    "prepare-data": {"tokens": 123456, "documents": 78},
    "train-tokenizer": {"vocabulary": 300},
    "swap-embedding": {"parameters": {"body": 99}},
}
"""What stages that measure nothing record."""


def result(*metrics: Measurement, **recorded: Any) -> dict[str, Any]:
    """A result.json with these measurements and facts."""
    return ResultRecord(metrics=metrics, recorded=recorded).as_json()


class _MadeToFailError(Exception):
    pass


def write_plan(folder: Path, changes: dict[str, Any] | None = None) -> Plan:
    """The plan of the sample sweep with top-level entries exchanged."""
    path = folder / "sample.yaml"
    path.write_text(yaml.safe_dump({**BASE, **(changes or {})}, sort_keys=False))
    return plan(load_sweep(path))


def declaring(plan: Plan, *metrics: Metric) -> Sweep:
    """The sweep of a plan whose passkey stages declare other metrics."""

    class Declaring(Passkey):
        def metrics(self) -> tuple[Metric, ...]:
            return metrics

    stages = tuple(
        dataclasses.replace(stage, spec=Declaring(**_options(stage.spec)))
        if isinstance(stage.spec, Passkey)
        else stage
        for stage in plan.sweep.stages
    )
    return dataclasses.replace(plan.sweep, stages=stages)


def _options(spec: Passkey) -> dict[str, Any]:
    return {option.name: getattr(spec, option.name) for option in dataclasses.fields(spec)}


NO_LINKS = RunLinks()


def make_report(plan: Plan | Sweep, store: Store, links: RunLinks = NO_LINKS) -> Report:
    """The report of a plan, with a made-up provenance."""
    provenance = {"sweep file": "sample.yaml", "fope-lab": "0.1.0", "commit": "abc1234"}
    sweep = plan if isinstance(plan, Sweep) else plan.sweep
    return build_report(sweep, store, provenance=provenance, links=links)


def report_of(
    folder: Path, store: Store | None = None, changes: dict[str, Any] | None = None, **options: Any
) -> Report:
    """The report of the sample sweep with changes, finished with these options of `finish`."""
    folder.mkdir(exist_ok=True)
    plan, store = write_plan(folder, changes), store or Store(folder / "store")
    finish(plan, store, **options)
    return make_report(plan, store)


def printed(report: Report, width: int = 60) -> str:
    """What a report prints where there is no terminal."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=False, width=width)
    print_report(report_text(report), report.summary.missing, console)
    return out.getvalue()


def links_of(plan: Plan, address: str = "http://127.0.0.1:5000") -> RunLinks:
    """A run for every stage, with an address."""
    ids = {stage.key: f"run-{stage.key}" for stage in plan.sweep.stages}
    return RunLinks(ids, {key: f"{address}/#/runs/{run}" for key, run in ids.items()})
