"""The kinds of stages and their configurations: what a stage's section of a sweep file may hold.

A kind is one class: its fields, its `version`, and the function that does its work, named as
"module:function" so that reading a sweep imports neither torch nor ray. Raise `version` when the
same configuration would give other numbers than before: old stages keep their keys, and the work
is done anew under new ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator

from fope_lab.data.base import Corpus
from fope_lab.data.recipe import Data
from fope_lab.sweep.messages import SectionError
from fope_lab.sweep.sections import (
    CorpusSection,
    DataSection,
    EmbeddingSection,
    ModelSection,
    TokenizerSection,
)

T = TypeVar("T", bound=Sequence[int])
PositiveInt = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]


def each_once(values: T) -> T:
    """For pydantic: a list of numbers that names none of them twice."""
    seen: set[int] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"names {value} twice")
        seen.add(value)
    return values


Lengths = Annotated[
    tuple[Annotated[int, Field(ge=2)], ...],
    Strict(False),
    Field(min_length=1),
    AfterValidator(each_once),
]


class Section(BaseModel):
    """A part of a sweep file: unknown keys are errors, and text is never read as a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    outside_key: ClassVar[frozenset[str]] = frozenset()
    """Fields that can't change a stage's numbers, and so are left out of its key."""
    outside_file: ClassVar[Mapping[str, str]] = {}
    """Fields that a sweep file does not give here, and what it gives instead."""


class Resources(Section):
    """What a stage occupies while it runs; with a fraction of a GPU, several stages share one."""

    cpus: Annotated[float, Field(gt=0)] = 1
    gpus: Annotated[float, Field(ge=0, le=1)] = 0


class TrainSettings(Section):
    """How long and how to train: AdamW with the learning rate as a function of the step."""

    outside_key = frozenset({"checkpoint_every", "log_every"})

    tokens: PositiveInt
    batch_tokens: PositiveInt
    learning_rate: Annotated[float, Field(gt=0)]
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup: Annotated[Fraction, Field(description="fraction of the steps")] = 0.1
    final_learning_rate: Annotated[Fraction, Field(description="fraction of the peak")] = 0.1
    betas: Annotated[tuple[Beta, Beta], Strict(False)] = (0.9, 0.95)
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    gradient_clip: Annotated[float, Field(gt=0)] = 1.0
    checkpoint_every: Annotated[PositiveInt, Field(description="steps")] = 200
    log_every: Annotated[PositiveInt, Field(description="steps")] = 10

    @property
    def steps(self) -> int:
        """Optimizer steps: enough for `tokens`."""
        return -(-self.tokens // self.batch_tokens)


class StageConfig(Section):
    """What all kinds of stages have."""

    outside_key = frozenset({"kind", "from_", "resources"})

    version: ClassVar[int] = 2  # frequencies are float64, not float32
    work: ClassVar[str]
    """The function that does the stage's work."""
    trains: ClassVar[bool] = False
    """Whether the stage trains a model, under the sweep's seeds."""

    kind: str
    resources: Resources = Resources()


class ChildConfig(StageConfig):
    """What all stages that start from a model have."""

    from_: Annotated[str, Field(alias="from", min_length=1)]


class TrainingConfig(StageConfig):
    """What all training stages have."""

    trains = True
    outside_file = MappingProxyType({"seed": "seeds are the whole sweep's, as in seeds: [0, 1, 2]"})

    data: DataSection
    train: TrainSettings
    seed: int = 0

    @model_validator(mode="after")
    def _whole_batches(self) -> Self:
        batch, length = self.train.batch_tokens, self.data.length
        if batch % length:
            below, above = batch // length * length, (batch // length + 1) * length
            nearest = f"the nearest are {below} and {above}" if below else f"the least is {above}"
            message = f"found {batch}, needs a multiple of data.length {length}; {nearest}"
            raise SectionError([(("train", "batch_tokens"), message)])
        return self


class PrepareData(StageConfig):
    """Tokenise a corpus once. No sweep file names it: every stage that reads a corpus needs one."""

    version = 1
    work = "trainers.prepare_data:run"

    kind: Literal["prepare-data"] = "prepare-data"
    corpus: CorpusSection
    tokenizer: str
    split: Literal["train", "validation"]


class Pretrain(TrainingConfig):
    """Train a model from scratch."""

    work = "trainers.pretrain:run"

    kind: Literal["pretrain"]
    model: ModelSection
    """The sizes given, as a dict; a resolved stage has the whole ModelConfig here."""
    embedding: EmbeddingSection
    tokenizer: TokenizerSection = "byte"


class Extend(TrainingConfig, ChildConfig):
    """Go on training a model, on longer text and perhaps with another embedding."""

    work = "trainers.extend:run"

    kind: Literal["extend"]
    embedding: EmbeddingSection | None = None


class Finetune(TrainingConfig, ChildConfig):
    """Supervised pairs: the loss is on the answers only."""

    work = "trainers.finetune:run"

    kind: Literal["finetune"]


class Perplexity(ChildConfig):
    """exp of the token-weighted mean loss on held-out text, at each context length."""

    outside_key = StageConfig.outside_key | {"batch_tokens"}
    work = "fope_lab.evaluation.perplexity:run"

    kind: Literal["perplexity"]
    corpus: CorpusSection
    lengths: Lengths
    method: Literal["chunked", "sliding"] = "chunked"
    stride: PositiveInt | None = None
    tokens: Annotated[PositiveInt | None, Field(description="at most; default all")] = None
    batch_tokens: PositiveInt = 16_384

    @model_validator(mode="after")
    def _text_longer_than_a_window(self) -> Self:
        longest = max(self.lengths)
        if self.tokens is not None and self.tokens <= longest:
            message = f"found {self.tokens}, needs more than the largest length {longest}"
            raise SectionError([(("tokens",), message)])
        return self

    @model_validator(mode="after")
    def _stride_of_a_sliding_window(self) -> Self:
        message = None
        if self.stride is None and self.method == "sliding":
            message = "is missing: method sliding needs a stride"
        elif self.stride is not None and self.method != "sliding":
            message = f"found {self.stride}, which has no effect with method {self.method}"
        elif self.stride is not None and self.stride > min(self.lengths):
            message = (
                f"found {self.stride}, needs at most the smallest length {min(self.lengths)}, so "
                "that no token between two windows is left out"
            )
        if message:
            raise SectionError([(("stride",), message)])
        return self


class Passkey(ChildConfig):
    """Whether the model repeats a key hidden in filler, at each context length."""

    outside_key = StageConfig.outside_key | {"batch_tokens"}
    work = "fope_lab.evaluation.passkey:run"

    kind: Literal["passkey"]
    lengths: Lengths
    trials: PositiveInt = 1000
    form: Literal["english", "symbolic"] = "english"
    batch_tokens: PositiveInt = 16_384


KINDS: dict[str, type[StageConfig]] = {
    kind.model_fields["kind"].annotation.__args__[0]: kind  # type: ignore[union-attr]
    for kind in (PrepareData, Pretrain, Extend, Finetune, Perplexity, Passkey)
}
FILE_KINDS = [kind for kind in KINDS if kind != "prepare-data"]
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
            if key and (name in value.outside_key or item == field.get_default()):
                continue
            result[field.alias or name] = plain(item, key=key)
        return result
    if isinstance(value, Corpus | Data):
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
