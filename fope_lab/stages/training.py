"""The stages that train a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Literal

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.options import Options, PositiveInt
from fope_lab.config.problems import FieldPath, Problem, missing
from fope_lab.config.roles import validation_role
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.model.adapter import Adapter
from fope_lab.model.checkpoint import Resizing
from fope_lab.stages.base import ChildConfig, StageConfig
from fope_lab.stages.internal import LEAST, BestOf, SwapEmbedding
from fope_lab.stages.metric import Metric
from fope_lab.stages.sections import (
    DataSection,
    EmbeddingSection,
    ModelSection,
    PrefixOption,
    TokenizerSection,
    windows_prefix,
)

TRAINING_RECORD = "training.json"
"""The file of a training's checkpoint with its steps, losses and times. No other stage reads it."""

ROW_ACCURACY, TOKEN_ACCURACY = "validation_accuracy", "validation_token_accuracy"
"""The accuracies of a validation: of whole rows, and of single tokens."""

Fraction = Annotated[float, Interval(ge=0, le=1)]
PositiveShare = Annotated[float, Interval(gt=0, le=1)]
Beta = Annotated[float, Interval(ge=0, lt=1)]


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Options):
    """How long and how to train: the optimizer, and its learning rate as a function of the step."""

    excluded_from_key = frozenset(
        {
            "checkpoint_every",
            "checkpoint_minutes",
            "log_every",
            "micro_batch_tokens",
            "length_groups",
            "gradient_checkpointing",
            "compile",
        }
    )

    tokens: Annotated[PositiveInt, Doc("The number of tokens to train on.")]
    batch_tokens: Annotated[PositiveInt, Doc("The number of tokens in an optimizer step.")]
    learning_rate: Annotated[float, Interval(gt=0), Doc("The peak learning rate.")]
    optimizer: Annotated[
        Literal["adamw", "muon"],
        Doc(
            "What updates the weights. muon: Muon for the matrices of the layers, scaled so that"
            " AdamW's rates and weight decay suit it, and AdamW for all else."
        ),
    ] = "adamw"
    schedule: Annotated[
        Literal["cosine", "linear", "wsd", "constant"],
        Doc(
            "The learning rate after the warm-up. linear decays linearly from the peak; it would"
            " reach the final rate one step past the end. wsd (warm-up, stable, decay) keeps the"
            " peak and then decays linearly over the share `decay` of the steps."
        ),
    ] = "cosine"
    warmup: Annotated[Fraction, Doc("The warm-up's share of the steps.")] = 0.1
    decay: Annotated[
        Fraction | None, Doc("The decay's share of the steps, for schedule wsd; 0.1 by default.")
    ] = None
    final_learning_rate: Annotated[
        Fraction, Doc("The learning rate at the end, as a fraction of the peak.")
    ] = 0.1
    betas: Annotated[tuple[Beta, Beta], Doc("AdamW's two betas.")] = (0.9, 0.95)
    weight_decay: Annotated[
        float,
        Interval(ge=0),
        Doc(
            "The decoupled weight decay of matrices: projections, token embedding, head and tables"
            " of positions. Biases, norms, and slopes or coefficients that position embeddings"
            " learn have none."
        ),
    ] = 0.1
    gradient_clip: Annotated[float, Interval(gt=0), Doc("The largest norm of the gradient.")] = 1.0
    precision: Annotated[
        Literal["float32", "bfloat16"],
        Doc("The precision of matrix products. Weights and the optimizer's state are float32."),
    ] = "float32"
    validate_every: Annotated[
        PositiveInt | None,
        Doc("The number of steps between validations on held-out data; the default is none."),
    ] = None
    validation_tokens: Annotated[
        PositiveInt | None, Doc("The most tokens to read in a validation; 65,536 by default.")
    ] = None
    validation_length: Annotated[
        PositiveInt | None,
        Doc("The number of tokens in a row of a validation; the default is data.length."),
    ] = None
    validation_part: Annotated[
        Literal["all", "first-half"],
        Doc(
            "The part of the held-out data that validations read. first-half leaves the other half"
            " to evaluations, so that a selection by validation loss does not read their text."
        ),
    ] = "all"
    keep: Annotated[
        Literal["last", "best", "most-accurate"],
        Doc(
            "The model that the stage leaves: the last one, the best by validation loss, or the"
            " most accurate in validations, the first of equals. The accuracy is the teacher-forced"
            " token accuracy on a task's held-out answers; a validation_length of data.length keeps"
            " it within the trained length."
        ),
    ] = field(default="last", metadata={"option": "select"})
    stop_at_accuracy: Annotated[
        PositiveShare | None,
        Doc(
            "The validation accuracy at which the training ends before it has read all tokens; by"
            " default it reads them all. It is the share of a task's held-out rows with every token"
            " of the answer right, teacher-forced. The learning rate is that of the whole training."
        ),
    ] = None
    micro_batch_tokens: Annotated[
        PositiveInt | None,
        Doc(
            "The number of tokens that a worker processes at once; the default is its whole share"
            " of the batch."
        ),
    ] = None
    length_groups: Annotated[
        PositiveInt | None,
        Doc(
            "The number of groups of rows of similar length in which a worker processes its batch;"
            " each group trims trailing padding. By default the rows keep their order and are"
            " processed whole. It changes numbers by rounding only, and what dropout draws."
        ),
    ] = None
    adapter: Annotated[
        Adapter | None,
        Doc(
            "Trains low-rank adapters of projections in place of all weights (LoRA), for further"
            " training only; an export merges them. By default all weights are trained."
        ),
    ] = None
    gradient_checkpointing: Annotated[
        bool, Doc("Whether to compute layers twice, which takes less memory and a third more time.")
    ] = False
    compile: Annotated[bool, Doc("Whether to compile the model with torch.compile.")] = False
    checkpoint_every: Annotated[
        PositiveInt, Doc("The number of steps between checkpoints to resume from.")
    ] = 200
    checkpoint_minutes: Annotated[
        float,
        Interval(gt=0),
        Doc(
            "The most minutes between checkpoints to resume from, however long a step takes; rarer"
            " if writing takes over 5 % of the time."
        ),
    ] = 5.0
    log_every: Annotated[PositiveInt, Doc("The number of steps between logged metrics.")] = 10

    def update_in_words(self) -> str:
        """What updates the weights, and which of them decay."""
        if self.adapter is not None:
            which, matrices = "AdamW for the adapters", "their matrices"
        else:
            matrices = "matrices (projections, token embedding, head, tables of positions)"
            which = "AdamW"
            if self.optimizer == "muon":
                which = "Muon for the layers' matrices, AdamW for the rest"
        spared = "none on biases, norms, and slopes or coefficients of position embeddings"
        decay = f"weight decay {self.weight_decay:g} on {matrices}, {spared}"
        return f"{which}; {decay if self.weight_decay else 'no weight decay'}"

    def __post_init__(self) -> None:
        """Fill in defaults that depend on another setting, so that giving them changes no key."""
        if self.schedule == "wsd" and self.decay is None:
            object.__setattr__(self, "decay", 0.1)
        if self.validate_every is not None and self.validation_tokens is None:
            object.__setattr__(self, "validation_tokens", 65_536)

    def problems(self) -> Iterable[Problem]:
        if self.warmup + (self.decay or 0) > 1 + 1e-9:
            message = f"found {self.decay:g}, which with warmup {self.warmup:g} is more than 1"
            yield Problem(("decay",), message, f"at most {1 - self.warmup:g}")
        if self.validate_every is None and self.keep != "last":
            yield missing(("validate_every",), f"select {self.keep} compares validations")

    def idle_options(self) -> Mapping[str, str]:
        idle = {}
        if self.schedule != "wsd":
            idle["decay"] = f"schedule {self.schedule} has no linear decay"
        if self.validate_every is None:
            of = ("validation_tokens", "validation_length", "validation_part", "stop_at_accuracy")
            idle |= dict.fromkeys(of, "there are no validations without validate_every")
        return idle

    @property
    def accuracies(self) -> tuple[str, ...]:
        """The accuracies that the training stops at or selects by."""
        stop = () if self.stop_at_accuracy is None else (ROW_ACCURACY,)
        return (*stop, TOKEN_ACCURACY) if self.keep == "most-accurate" else stop

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


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(StageConfig):
    """What all training stages have."""

    version = 3  # the loss is computed in chunks of tokens
    trains = True
    divisible = True
    leaves_model = True
    outside_file = MappingProxyType({"seed": "seeds are the whole sweep's, as in seeds: [0, 1, 2]"})

    entry_point = "trainers.stage:run"

    data: DataSection
    train: TrainSettings
    best_of: Annotated[
        BestOf | None,
        Doc(
            "Trains the stage with every value of one axis, and has the stages that start from it"
            " start from the best, for each combination of the other axes."
        ),
    ] = field(default=None, metadata={"option": "select"})
    prefix: PrefixOption = "tokenizer"
    seed: int = 0

    def prefix_in_key(self, tokenizer: TokenizerRecipe) -> str | None:
        corpora = [source.corpus for source in self.data.mix if source.corpus is not None]
        if all(corpus.kind == "chats" for corpus in corpora):
            return super().prefix_in_key(tokenizer)  # a template writes what begins a chat
        return windows_prefix(self.prefix, tokenizer)

    def tells_progress(self) -> bool:
        return True

    def held_out(self) -> tuple[str, ...]:
        """The roles of the prepared data that validations read."""
        sources = enumerate(self.data.mix if self.train.validate_every is not None else ())
        return tuple(validation_role(i) for i, source in sources if source.corpus is not None)

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The longest row that the model reads, in training or in validation."""
        held_out = self.train.validation_length or 0
        if held_out > self.data.length:
            return ("train", "validation_length"), held_out
        return ("data", "length"), self.data.length

    def metrics(self) -> Iterable[Metric]:
        """The losses of the last rows trained on and of validations, and their accuracies."""
        yield Metric(name="loss", short_name="loss", better="lower", unit="nats")
        for name in ("validation_loss", LEAST) if self.train.validate_every is not None else ():
            yield Metric(name=name, short_name=name, better="lower", unit="nats")
        for name in self.train.accuracies:
            yield Metric(name=name, short_name=name, better="higher", unit="fraction")

    def problems(self) -> Iterable[Problem]:
        yield from super().problems()
        train, length = self.train, self.data.length
        if train.optimizer == "muon" and train.adapter is not None:
            fault = "found muon, but with an adapter no matrix of the layers is trained"
            yield Problem(("train", "optimizer"), fault, "adamw")
        whole = True
        for name in ("batch_tokens", "micro_batch_tokens"):
            tokens = getattr(train, name)
            if tokens is not None and tokens % length:
                whole = False
                message = f"found {tokens}, needs a multiple of data.length {length}"
                yield Problem(("train", name), f"{message}; {_nearest(tokens, length)}")
        workers = self.resources.size
        if whole and train.batch_tokens // length % workers:
            message = (
                f"found {train.batch_tokens}, {train.batch_tokens // length} sequences, which"
                f" {workers} workers can't share; {_nearest(train.batch_tokens, length * workers)}"
            )
            yield Problem(("train", "batch_tokens"), message)
        name, row = "data.length", length
        if train.validation_length is not None:
            name, row = "validation_length", train.validation_length
        if train.validation_tokens is not None and train.validation_tokens < row:
            message = f"found {train.validation_tokens}, needs at least {name} {row}"
            yield Problem(("train", "validation_tokens"), message)
        reads_text = any(source.corpus for source in self.data.mix)
        tasks = (source.task for source in self.data.mix if source.task)
        held_out = reads_text or any(task.has_held_out for task in tasks)
        if train.validate_every is not None and not held_out:
            message = "has no effect: data has no corpus, and no task with held-out rows"
            yield Problem(("train", "validate_every"), f"{message} (algorithmic, posgen)")
        elif train.validation_part != "all" and not reads_text:
            message = "has no effect: data has no corpus, so the validations read a task"
            yield Problem(("train", "validation_part"), message)
        needs = "data of tasks alone"
        if reads_text and train.stop_at_accuracy is not None:
            message = "validations read the text of data, whose rows no model predicts exactly"
            yield Problem(("train", "stop_at_accuracy"), message, needs)
        if reads_text and train.keep == "most-accurate":
            message = "validations read the text of data, and this accuracy is that of answers"
            yield Problem(("train", "select"), message, f"{needs}, or best")
        if self.best_of is not None and train.validate_every is None:
            reason = f"select compares the candidates by {self.best_of.by}"
            yield missing(("train", "validate_every"), reason)
        if self.best_of is not None and self.best_of.by == LEAST and train.keep != "best":
            fault = f"found {LEAST}, but the training leaves the {train.keep} model"
            yield Problem(("select", "by"), fault, "validation_loss, or best for train.select")


def _nearest(tokens: int, multiple: int) -> str:
    below, above = tokens // multiple * multiple, (tokens // multiple + 1) * multiple
    return f"the nearest are {below} and {above}" if below else f"the least is {above}"


@dataclass(frozen=True, kw_only=True)
class Pretrain(TrainingConfig, kind="pretrain"):
    """Train a model from scratch."""

    model: ModelSection
    """The sizes given, as a dict; a resolved stage has the whole ModelConfig here."""
    embedding: EmbeddingSection
    tokenizer: TokenizerSection = "byte"

    def stands_alone(self) -> bool:
        return True

    def problems(self) -> Iterable[Problem]:
        yield from super().problems()
        if self.train.adapter is not None:
            fault = "an adapter changes weights that were trained before"
            yield Problem(("train", "adapter"), fault, "a stage of kind extend or finetune")


@dataclass(frozen=True, kw_only=True)
class FurtherTraining(TrainingConfig, ChildConfig):
    """A stage that goes on training a model.

    `embedding` replaces that of the parent; None keeps it.
    """

    embedding: Annotated[
        EmbeddingSection | None,
        Doc("The embedding that replaces that of the model. By default the model keeps its own."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Extend(FurtherTraining, kind="extend"):
    """Continue training a model on longer text, with its own embedding or with another. With
    `train: none`, only give it another embedding."""

    untrained = SwapEmbedding

    resizing: Annotated[
        Resizing,
        Doc(
            "What becomes of an embedding's coefficients if only frequencies change, and another"
            " number of them needs matrices of another size. draw: all are drawn. expand: those"
            " that there are stay, and the rest is drawn, as the released code of FoPE extends a"
            " model by FoPE. pad: they stay, and the rest is 0, as it extends FoPE by YaRN."
        ),
    ] = "draw"

    def problems(self) -> Iterable[Problem]:
        yield from super().problems()
        if self.resizing != "draw" and self.embedding is None:
            fault = "has no effect: the model keeps its embedding"
            yield Problem(("resizing",), f"found {self.resizing}, which {fault}")


@dataclass(frozen=True, kw_only=True)
class Finetune(FurtherTraining, kind="finetune"):
    """Train a model on supervised pairs or chats; the loss is on the tokens of the answers only.

    `tokenizer` replaces the model's own: it has the same ids, and a chat template.
    """

    tokenizer: Annotated[
        TokenizerSection | None,
        Doc(
            "The tokenizer that replaces the model's own; it has the same ids, and may have a chat"
            " template."
        ),
    ] = None
