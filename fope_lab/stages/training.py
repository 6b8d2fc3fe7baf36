"""The stages that train a model."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, Strict, model_validator

from fope_lab.config.problems import ConfigError, FieldPath, Problem
from fope_lab.stages.base import ChildConfig, StageConfig
from fope_lab.stages.metric import Metric
from fope_lab.stages.section import PositiveInt, Section
from fope_lab.stages.sections import DataSection, EmbeddingSection, ModelSection, TokenizerSection

Fraction = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class TrainSettings(Section):
    """How long and how to train: AdamW with the learning rate as a function of the step."""

    excluded_from_key = frozenset(
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
    validation_length: Annotated[
        PositiveInt | None, Field(description="tokens of a held-out row; default data.length")
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

    def share(self, workers: int) -> int:
        """Tokens of a batch that each of `workers` processes."""
        return self.batch_tokens // workers

    def micro_batch(self, workers: int) -> int:
        """Tokens that each of `workers` processes in one forward and backward pass."""
        share = self.share(workers)
        return min(self.micro_batch_tokens or share, share)

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
        found: list[Problem] = []
        if self.decay is not None and self.schedule != "wsd":
            message = f"found {self.decay:g}, which has no effect with schedule {self.schedule}"
            found.append(Problem(("decay",), message))
        if self.warmup + (self.decay or 0) > 1 + 1e-9:
            message = (
                f"found {self.decay:g}, which with warmup {self.warmup:g} is more than all steps;"
                f" needs at most {1 - self.warmup:g}"
            )
            found.append(Problem(("decay",), message))
        for name in ("validation_tokens", "validation_length"):
            if self.validate_every is None and (given := getattr(self, name)) is not None:
                message = f"found {given}, which has no effect without validate_every"
                found.append(Problem((name,), message))
        if self.validate_every is None and self.select == "best":
            message = "is missing: select best is by the losses on held-out data"
            found.append(Problem(("validate_every",), message))
        if found:
            raise ConfigError(found)
        return self


class TrainingConfig(StageConfig):
    """What all training stages have."""

    trains = True
    outside_file = MappingProxyType({"seed": "seeds are the whole sweep's, as in seeds: [0, 1, 2]"})

    entry_point = "trainers.stage:run"
    start: ClassVar[str]
    """The function that returns what the training starts from (trainers.start.Start)."""

    data: DataSection
    train: TrainSettings
    seed: int = 0

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """A row of training or of validation."""
        held_out = self.train.validation_length or 0
        if held_out > self.data.length:
            return ("train", "validation_length"), held_out
        return ("data", "length"), self.data.length

    def metrics(self) -> Iterable[Metric]:
        """The last losses."""
        names = ["loss"]
        if self.train.validate_every is not None:
            names += ["validation_loss", "least_validation_loss"]
        return [Metric(name=name, short_name=name, better="lower", unit="nats") for name in names]

    @model_validator(mode="after")
    def _whole_batches(self) -> Self:
        train, length = self.train, self.data.length
        found: list[Problem] = []
        for name in ("batch_tokens", "micro_batch_tokens"):
            tokens = getattr(train, name)
            if tokens is not None and tokens % length:
                message = f"found {tokens}, needs a multiple of data.length {length}"
                found.append(Problem(("train", name), f"{message}; {_nearest(tokens, length)}"))
        workers = self.resources.size
        if not found and train.batch_tokens // length % workers:
            message = (
                f"found {train.batch_tokens}, {train.batch_tokens // length} sequences, which"
                f" {workers} workers can't share; {_nearest(train.batch_tokens, length * workers)}"
            )
            found.append(Problem(("train", "batch_tokens"), message))
        name, row = "data.length", length
        if train.validation_length is not None:
            name, row = "validation_length", train.validation_length
        if train.validation_tokens is not None and train.validation_tokens < row:
            message = f"found {train.validation_tokens}, needs at least {name} {row}"
            found.append(Problem(("train", "validation_tokens"), message))
        if train.validate_every is not None and not any(
            one.corpus or (one.task and one.task.has_held_out) for one in self.data.mix
        ):
            message = "has no effect: data has no corpus, and no task with held-out rows (posgen)"
            found.append(Problem(("train", "validate_every"), message))
        if found:
            raise ConfigError(found)
        return self


def _nearest(tokens: int, multiple: int) -> str:
    """Which numbers of tokens would do instead."""
    below, above = tokens // multiple * multiple, (tokens // multiple + 1) * multiple
    return f"the nearest are {below} and {above}" if below else f"the least is {above}"


class Pretrain(TrainingConfig):
    """Train a model from scratch."""

    start = "trainers.pretrain:start"

    kind: Literal["pretrain"]
    model: ModelSection
    """The sizes given, as a dict; a resolved stage has the whole ModelConfig here."""
    embedding: EmbeddingSection
    tokenizer: TokenizerSection = "byte"

    def stands_alone(self) -> bool:
        """It starts from scratch."""
        return True


class FurtherTraining(TrainingConfig, ChildConfig):
    """What all stages that go on training a model have."""

    embedding: EmbeddingSection | None = None
    """In place of the parent's own."""


class Extend(FurtherTraining):
    """Go on training a model, on longer text and perhaps with another embedding."""

    start = "trainers.extend:start"

    kind: Literal["extend"]


class Finetune(FurtherTraining):
    """Supervised pairs or chats, perhaps with another embedding: the loss is on what the assistant
    says only."""

    start = "trainers.finetune:start"

    kind: Literal["finetune"]
    tokenizer: TokenizerSection | None = None
    """In place of the model's own: one with the same ids, and a chat template."""
