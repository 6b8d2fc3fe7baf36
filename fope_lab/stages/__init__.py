"""What the kinds of stages are made of, and the kinds that train or prepare data.

A kind is one class: its fields, its `version`, and its `entry_point`, the function that does its
work, named as "module:function" so that reading a sweep imports neither torch nor ray. Raise
`version` when the same configuration would give other numbers than before: old stages keep their
keys, and the work is done anew under new ones. The kinds that measure are in
`fope_lab/evaluation/`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fope_lab.analysis import Analysis
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.recipe import Data
from fope_lab.data.tokenizers.recipe import TrainedTokenizer
from fope_lab.stages.base import ChildConfig, Resources, StageConfig
from fope_lab.stages.data import CopyTokenizer, PrepareData, TrainTokenizer
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
    "ChildConfig",
    "CopyTokenizer",
    "Extend",
    "Finetune",
    "FurtherTraining",
    "PrepareData",
    "Pretrain",
    "Resources",
    "Section",
    "StageConfig",
    "TrainSettings",
    "TrainTokenizer",
    "TrainingConfig",
    "each_once",
    "plain",
]


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
