"""The kinds of stages that train or prepare data, and what all kinds have.

A kind is one frozen dataclass: its fields, its `version`, and its `entry_point`, the function that
does its work, named as "module:function" so that reading a sweep imports neither torch nor ray.
Raise `version` when the same configuration would give other numbers than before: old stages keep
their keys, and the work is done anew under new ones. The kinds that measure are in
`fope_lab/evaluation/`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fope_lab.analysis import Analysis
from fope_lab.config.options import default_of, option_name
from fope_lab.config.section import Section
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.recipe import Data
from fope_lab.data.tokenizers.recipe import TrainedTokenizer
from fope_lab.stages.base import ChildConfig, Resources, StageConfig
from fope_lab.stages.data import CopyTokenizer, PrepareData, TrainTokenizer
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
    "StageConfig",
    "TrainSettings",
    "TrainTokenizer",
    "TrainingConfig",
    "plain",
]


def plain(value: Any, *, key: bool = False) -> Any:
    """A configuration as JSON values.

    In full, or for the key: without fields that can't change a number and without fields at their
    defaults, so that a field added later leaves old keys as they are.
    """
    if isinstance(value, Analysis | Corpus | Data | TrainedTokenizer):
        return value.canonical()
    if dataclasses.is_dataclass(value):
        excluded = value.excluded_from_key if isinstance(value, Section) else frozenset()
        result = {"kind": value.kind} if isinstance(value, StageConfig) and not key else {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if not (key and (field.name in excluded or item == default_of(field))):
                result[option_name(field)] = plain(item, key=key)
        return result
    if isinstance(value, dict):
        return {name: plain(item, key=key) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, key=key) for item in value]
    return value
