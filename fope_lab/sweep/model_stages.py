"""The stages that no sweep file names and that leave a model: `select` and `swap-embedding`.

A `select` stage chooses among the candidates of a training stage, once for each combination of the
other axes and each seed. Its key follows from the rule and from the keys of all candidates, so it
is known before anything runs. A swap is made once, however many evaluations ask for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fope_lab.config.cache import Cache
from fope_lab.config.problems import Problem, first_names, nearest_name, shown
from fope_lab.data.roles import MODEL, candidate_role
from fope_lab.embeddings import Embedding
from fope_lab.stages import BestOf, Select, SwapEmbedding
from fope_lab.stages.labels import label, stage_label
from fope_lab.sweep.cost import Cost, cost_of
from fope_lab.sweep.drafts import Parent
from fope_lab.sweep.graph import Stage, make_stage
from fope_lab.sweep.model_spec import learned_parameters_of, model_spec_of
from fope_lab.sweep.sweep_file import SweepFile

TRAIN = "train"
"""The field of a stage whose settings can be selected: they leave the model's shape as it is."""
MEASURE = frozenset(
    {"validate_every", "validation_tokens", "validation_length", "validation_part", "select"}
)
"""Those that change what a candidate is measured by."""


def rule_problems(file: SweepFile) -> Iterator[Problem]:
    """Yield what is wrong with the axes that sections select over, each with its place."""
    included = (axis for point in file.include for axis in point)
    axes = dict.fromkeys([*file.grid, *file.zip, *included])
    for name, selected in file.selected_axes.items():
        if selected in axes and _is_setting(selected):
            continue
        if selected in axes and selected.rpartition(".")[2] in MEASURE:
            yield Problem(
                ("stages", name, "select", "over"),
                f"found {shown(selected.partition('.')[2])}, which changes what the candidates are"
                " compared by",
                "a setting of the training itself",
            )
            continue
        own = [axis.partition(".")[2] for axis in axes if axis.partition(".")[0] == name]
        allowed = [field for field in own if _is_setting(f"{name}.{field}")]
        over = selected.partition(".")[2]
        yield Problem(
            ("stages", name, "select", "over"),
            f"found {shown(over)}, which is no axis of {name} that sets a field of train",
            None if allowed else f"an axis in grid, such as {name}.train.learning_rate: […]",
            nearest=nearest_name(over, allowed),
            allowed=first_names(allowed) or None,
        )


def _is_setting(axis: str) -> bool:
    _, part, *fields = axis.split(".")
    return part == TRAIN and MEASURE.isdisjoint(fields)


def select_stages(rule: BestOf, candidates: Sequence[Stage]) -> dict[int, Stage]:
    """Return the stages that choose among candidates, by their seeds.

    The candidates are those of every value of the axis under every seed, in the order of the file.
    Raises ValueError if they have one value only.
    """
    first = candidates[0]
    axis = f"{first.section}.{rule.over}"
    by_value: dict[str, dict[int, Stage]] = {}
    for stage in candidates:
        assert stage.seed is not None, "a training has a seed"
        by_value.setdefault(label(stage.axes[axis]), {})[stage.seed] = stage
    rows = list(by_value.values())
    if len(rows) < 2:
        raise ValueError(f"found one candidate, {next(iter(by_value))}, and needs several")
    seeds = tuple(sorted(rows[0]))
    axes = {path: value for path, value in first.axes.items() if path != axis}
    spec = Select(
        over=rule.over,
        by=rule.by,
        values=tuple(row[seeds[0]].axes[axis] for row in rows),
        seeds=seeds,
        seed=seeds[0],
    )
    parents = {
        candidate_role(i, seed): row[seed].key for i, row in enumerate(rows) for seed in seeds
    }
    return {
        seed: make_stage(
            dataclasses.replace(spec, seed=seed),
            section=spec.kind,
            label=f"{spec.kind}[{stage_label(first.section, axes, seed)}]",
            axes=axes,
            seed=seed,
            parents=parents,
            model_spec=first.model_spec,
            cost=Cost(first.cost.parameters, 0, 0.0),
        )
        for seed in seeds
    }


def with_swapped_embedding(
    parent: Parent, embedding: Embedding, given: Any, cache: Cache
) -> Parent:
    """Return what an evaluation starts from that wants another embedding in its model.

    `embedding` is what the file calls `given`. It is the parent itself if that has this embedding
    already. Raises ConfigError, at the path ("embedding",), if the model can't have it.
    """
    before = parent.model_spec
    assert before is not None, "only a model has an embedding"
    if before.embedding == embedding:
        return parent
    stage = parent.stage
    spec = SwapEmbedding(
        from_=stage.section if stage else str(parent.external and parent.external.path),
        embedding=embedding,
        seed=(stage.seed if stage else None) or 0,
    )
    model_spec = model_spec_of(spec, {"embedding": given}, before, cache)
    origin = stage.label if stage else Path(spec.from_).name
    swapped = make_stage(
        spec,
        section=spec.kind,
        label=f"{spec.kind}[{model_spec.embedding_label},{origin}]",
        axes=stage.axes if stage else None,
        seed=stage.seed if stage else None,
        parents={MODEL: stage.key} if stage else {},
        external=parent.external,
        model_spec=model_spec,
        cost=cost_of(spec, model_spec.model, learned_parameters_of(model_spec, cache)),
    )
    return Parent((swapped.key, parent.memo_key), swapped, ancestors=(*parent.ancestors, swapped))
