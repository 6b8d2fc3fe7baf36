"""The kinds of stages and their configurations: what a stage's section of a sweep file may hold.

A kind is one class: its fields, its `version`, and the function that does its work, named as
"module:function" so that reading a sweep imports neither torch nor ray. Raise `version` when the
same configuration would give other numbers than before: old stages keep their keys, and the work
is done anew under new ones.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fope_lab.analysis import Analysis
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.recipe import Data
from fope_lab.data.tokenizers.recipe import TrainedTokenizer
from fope_lab.stages.analysis import AnalysisStage
from fope_lab.stages.base import ChildConfig, Resources, StageConfig
from fope_lab.stages.data import CopyTokenizer, PrepareData, TrainTokenizer
from fope_lab.stages.downstream import Downstream
from fope_lab.stages.evaluation import EvaluationConfig
from fope_lab.stages.leval import LEval
from fope_lab.stages.longbench import LongBench
from fope_lab.stages.needle import Needle
from fope_lab.stages.passkey import Passkey
from fope_lab.stages.perplexity import Perplexity
from fope_lab.stages.posgen import PosGen
from fope_lab.stages.ruler import Ruler
from fope_lab.stages.section import Section, each_once
from fope_lab.stages.training import (
    Extend,
    Finetune,
    FurtherTraining,
    Pretrain,
    TrainingConfig,
    TrainSettings,
)

__all__ = [
    "FILE_KINDS",
    "KINDS",
    "AnalysisStage",
    "ChildConfig",
    "CopyTokenizer",
    "Downstream",
    "EvaluationConfig",
    "Extend",
    "Finetune",
    "FurtherTraining",
    "LEval",
    "LongBench",
    "Needle",
    "Passkey",
    "Perplexity",
    "PosGen",
    "PrepareData",
    "Pretrain",
    "Resources",
    "Ruler",
    "Section",
    "StageConfig",
    "TrainSettings",
    "TrainTokenizer",
    "TrainingConfig",
    "each_once",
    "plain",
]

KINDS: dict[str, type[StageConfig]] = {
    kind.model_fields["kind"].annotation.__args__[0]: kind  # type: ignore[union-attr]
    for kind in (
        PrepareData,
        TrainTokenizer,
        CopyTokenizer,
        Pretrain,
        Extend,
        Finetune,
        Perplexity,
        Passkey,
        Needle,
        Ruler,
        PosGen,
        Downstream,
        LongBench,
        LEval,
        AnalysisStage,
    )
}
FILE_KINDS = [kind for kind, cls in KINDS.items() if cls.user_facing]
"""The kinds that a sweep file may name."""


def plain(value: Any, *, key: bool = False) -> Any:
    """A configuration as JSON values.

    In full, or for the key: without fields that can't change a number and without fields at their
    defaults, so that a field added later leaves old keys as they are.
    """
    if isinstance(value, Section):
        result = {}
        for name, field in type(value).model_fields.items():
            item = getattr(value, name)
            if key and (name in value.excluded_from_key or item == field.get_default()):
                continue
            result[field.alias or name] = plain(item, key=key)
        return result
    if isinstance(value, Analysis | Corpus | Data | TrainedTokenizer):
        return value.canonical()
    if dataclasses.is_dataclass(value):
        return {
            field.name: plain(getattr(value, field.name), key=key)
            for field in dataclasses.fields(value)
            if not (key and getattr(value, field.name) == field.default)
        }
    if isinstance(value, dict):
        return {name: plain(item, key=key) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, key=key) for item in value]
    return value
