"""What all kinds of stages have, and how a section of a sweep file becomes a stage of its kind."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

from annotated_types import MinLen

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.cache import Cache
from fope_lab.config.named_types import NamedTypes
from fope_lab.config.options import Entry, Options, PositiveInt, Registry, entry_of
from fope_lab.config.problems import ConfigError, FieldPath, Problem
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.embeddings import Embedding
from fope_lab.stages.metric import Metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNTRAINED = "none"
"""What a section's `train` is where the model goes on without training."""
TRAIN, DATA = "train", "data"
NO_DATA = (
    "has no effect: train is none, so no data is read; zip goes through both, as in"
    " {extend.train: [none, {…}], extend.data: [null, {…}]}"
)
STAGE_TYPES: NamedTypes[StageConfig] = NamedTypes(
    "fope_lab.stages", "fope_lab.evaluation", skip=("context",)
)
"""Every kind of stage by name: trainings are in training.py beside this file, what prepares data in
internal.py, and evaluations in fope_lab/evaluation. All are imported when first asked for."""


@dataclass(frozen=True, kw_only=True)
class Resources(Options):
    """What a stage occupies while it runs; with a fraction of a GPU, several stages share one.

    A process has one GPU at most, so a stage on several GPUs has as many workers.
    """

    cpus: Annotated[
        float,
        Interval(gt=0),
        Doc(
            "The number of CPUs reserved for each worker. Torch computes with a thread on each of"
            " them, and preparing data starts a process on each. Another number of threads changes"
            " results by rounding only."
        ),
    ] = 1
    gpus: Annotated[
        float,
        Interval(ge=0),
        Doc("The number of GPUs of all workers together, or a fraction of one GPU."),
    ] = 0
    workers: Annotated[
        PositiveInt | None,
        Doc(
            "The number of processes that share a training or an evaluation of a model; the"
            " default is one, or one for each GPU."
        ),
    ] = None
    strategy: Annotated[
        Literal["ddp", "fsdp"],
        Doc("What each of several workers holds: the whole model (ddp) or a share of it (fsdp)."),
    ] = "ddp"

    @property
    def size(self) -> int:
        return self.workers or max(1, int(self.gpus))

    @property
    def threads(self) -> int:
        """The number of threads that torch computes with in each worker: one for each whole CPU."""
        return max(1, int(self.cpus))

    def problems(self) -> Iterable[Problem]:
        gpus = f"{self.gpus:g}"
        if self.gpus > 1 and self.gpus != int(self.gpus):
            needs = "a fraction of one GPU or a whole number of them"
            yield Problem(("gpus",), f"found {gpus}", needs)
        elif self.gpus > self.size:
            message = f"found {self.workers} for {gpus} GPUs; each worker has one at most"
            yield Problem(("workers",), message)
        elif 0 < self.gpus < self.size and self.size > 1:
            message = f"found {self.size} for {gpus} GPU; several workers have one each"
            yield Problem(("workers",), message)


class Picture(Protocol):
    """What draws the arrays of a stage, and says which paper shows what with such a figure."""

    name: ClassVar[str]
    source: ClassVar[str]
    says: ClassVar[str]

    @property
    def number_words(self) -> Mapping[str, str]:
        """The words, with the unit after a comma, for the numbers beside the figure."""

    def draw(self, arrays: Mapping[str, Any]) -> Figure:
        """Draw the arrays that the stage has left."""


class ForwardPass(NamedTuple):
    """`sequences` of `length` tokens that a model reads, forward only."""

    length: int
    sequences: int


@dataclass(frozen=True, kw_only=True)
class StageConfig(Options, ABC):
    """What all kinds of stages have. Defining a class with a `kind` registers it."""

    # The kind and the parents have places of their own in the key (stages/key.py).
    excluded_from_key = frozenset({"from_", "resources", "timeout"})

    kind: ClassVar[str]
    """The name of the kind in a sweep file."""
    version: ClassVar[int]
    """Raised when the same configuration would give other numbers than before."""
    entry_point: ClassVar[str]
    """The function that does the stage's work."""
    trains: ClassVar[bool] = False
    """Whether the stage trains a model, under the sweep's seeds."""
    measures_model: ClassVar[bool] = False
    """Whether the stage measures the model of another."""
    divisible: ClassVar[bool] = False
    """Whether several workers can share the stage's work."""
    leaves_model: ClassVar[bool] = False
    """Whether the stage leaves a model that other stages can start from."""
    untrained: ClassVar[type[StageConfig] | None] = None
    """The kind of stage that a section of this kind stands for if its `train` is UNTRAINED."""
    user_facing: ClassVar[bool] = True
    """Whether a sweep file may name the kind; others are added where a stage needs one."""
    corpus_path: ClassVar[tuple[str, ...]] = ()
    """The fields that lead to the corpus whose documents the stage reads itself, if it does."""
    outside_file: ClassVar[Mapping[str, str]] = {}
    """Fields that a stage's section does not give, and what gives them instead."""

    resources: Resources = Resources()
    timeout: Annotated[
        Annotated[float, Interval(gt=0)] | None,
        Doc(
            "The minutes without progress, such as a step, after which a run ends the stage as"
            " failed. By default it may take as long as it does."
        ),
    ] = None

    def __init_subclass__(cls, kind: str | None = None) -> None:
        super().__init_subclass__()
        if kind is not None:
            cls.kind = kind
            STAGE_TYPES.register(kind, cls)

    def problems(self) -> Iterable[Problem]:
        if self.resources.size > 1 and not self.divisible:
            workers = self.resources.workers
            name, given = ("gpus", self.resources.gpus) if workers is None else ("workers", workers)
            needs = "at most 1: only trainings and evaluations of a model have several workers"
            yield Problem(("resources", name), f"found {given:g}", needs)
        elif self.resources.size > 1 and self.resources.strategy != "ddp" and not self.trains:
            message = f"found {self.resources.strategy!r}: only a training shares out its model"
            yield Problem(("resources", "strategy"), message)
        if self.timeout is not None and self.user_facing and not self.tells_progress():
            message = f"found {self.timeout:g}: this {self.kind} tells no progress while it works"
            yield Problem(("timeout",), message)

    def stands_alone(self) -> bool:
        """Whether the stage starts from no model of another stage."""
        return False

    def tells_progress(self) -> bool:
        """Whether the work tells how far it is (RunWriter.progress), as a `timeout` needs."""
        return False

    def without_swap(self) -> tuple[StageConfig, Embedding | None]:
        """The stage without the embedding that its model is to get first, and that embedding."""
        return self, None

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """The names that the field `tasks` may hold, for a kind that has this field."""
        return ()

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        """All that the model reads without being trained; None where only running can tell."""
        return None

    def largest_batches(self) -> Iterable[ForwardPass] | None:
        """The most that the model reads at once, at each length, without being trained; None where
        only running can tell."""
        return None

    def with_smaller_batches(self) -> Iterator[tuple[str, StageConfig]]:
        """Yield this stage with smaller batches, the largest first, each after its words."""
        yield from ()

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The field that says so, and the longest sequence in tokens that the model reads."""
        return None

    def corpora(self) -> Mapping[str, Corpus]:
        """The corpora whose held-out part the stage reads, by field; none for a training."""
        return {}

    def reads(self) -> Corpus | None:
        """The corpus that `corpus_path` leads to; None if the stage reads none itself."""
        found: Any = self
        return functools.reduce(getattr, self.corpus_path, found) if self.corpus_path else None

    def metrics(self) -> Iterable[Metric]:
        """The metrics that the stage logs, which claims, tables and figures may name."""
        return ()

    def number_names(self) -> Iterable[str]:
        """The names of the numbers beside a figure, which claims alone may name."""
        return ()

    def heatmaps_in(self, details: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """The heat maps that the details of a result are enough for, beside those that it has."""
        return ()

    def picture(self) -> Picture | None:
        """What draws the arrays that the stage leaves, if it leaves any."""
        return None

    def recorded_in_words(self, recorded: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a result recorded, by the names under which a report lists it."""
        return recorded

    def part_read(self) -> str | None:
        """The part of the text of `corpora` that the stage measures a loss on, if it does."""
        return None

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[Problem]:
        """What the stage can't do with a tokenizer."""
        return ()

    def parent_problems(self, parent: StageConfig) -> Iterable[Problem]:
        """What the stage can't do with the model of its parent."""
        return ()

    def key_replacements(self) -> Mapping[str, Any]:
        """The content of local files, which the key has instead of fields. Raises DataError."""
        return {}

    def prefix_in_key(self, tokenizer: TokenizerRecipe) -> str | None:
        """What the key says of `prefix`; None if nothing."""
        prefix = getattr(self, "prefix", "tokenizer")
        return None if prefix == "tokenizer" else str(prefix)

    def in_words(self) -> str:
        """What the plan says of the stage beside its state; nothing of most."""
        return ""

    def missing_resource(self, store: Path | None) -> str | None:
        """What the stage needs and the store lacks, and what to do about it."""
        return None


@dataclass(frozen=True, kw_only=True)
class ChildConfig(StageConfig):
    """What all stages that start from a model have."""

    from_: Annotated[
        str,
        MinLen(1),
        Doc(
            "The model to start from: the name of a stage in this file, FILE.yaml#STAGE, a"
            " checkpoint folder, or hf:NAME@COMMIT. It may be an axis, such as"
            " {perplexity.from: [pretrain, extend]}, which puts several models into one table."
        ),
    ] = field(metadata={"option": "from"})


REPLACED = {"longbench": "lm-eval, with tasks such as longbench_trec_e"}
"""What does the work of a kind that is gone."""


class _FileKinds(Registry[StageConfig]):
    def all_names(self) -> tuple[str, ...]:
        return tuple(name for name, kind in self._types.all().items() if kind.user_facing)

    def entry(self, name: str) -> Entry[StageConfig]:
        """The options of a kind, without the fields that something else gives."""
        return _in_file(self._types.all()[name])

    def _known(self, name: str, at: FieldPath) -> str:
        if name in REPLACED and name not in self.all_names():
            raise ConfigError(Problem(at, f"the {self.noun} {name!r} is gone", REPLACED[name]))
        return super()._known(name, at)


def _in_file(kind: type[StageConfig], title: str = "") -> Entry[StageConfig]:
    entry = entry_of(kind, title)
    options = {key: o for key, o in entry.options.items() if key not in kind.outside_file}
    return dataclasses.replace(entry, options=options, refused=kind.outside_file)


FILE_KINDS = _FileKinds("stage kind", STAGE_TYPES, key="kind")
"""Every kind that a sweep file may name."""


def parse_stage(given: Mapping[str, Any], base: Path, cache: Cache) -> StageConfig:
    """Return the stage of a section, which may be one without training. Raises ConfigError."""
    name = given.get("kind")
    kind = STAGE_TYPES.all().get(name) if isinstance(name, str) else None
    if kind is None or not kind.user_facing:
        return FILE_KINDS.parse(given, base, cache=cache)  # raises: a file can't name this kind
    options = {key: value for key, value in given.items() if key != "kind"}
    entry = _in_file(kind)
    if kind.untrained is not None and options.get(TRAIN) == UNTRAINED:
        del options[TRAIN]
        if options.get(DATA, ...) is None:
            del options[DATA]
        entry = _in_file(kind.untrained, title="train: none")
        entry = dataclasses.replace(entry, refused={**entry.refused, DATA: NO_DATA})
    return entry.read(options, base, cache)


def load_function(name: str) -> Callable[..., Any]:
    """Import the function `name`, written as "module:function"."""
    module, _, function = name.partition(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return loaded
