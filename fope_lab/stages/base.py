"""What all kinds of stages have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fope_lab.config.problems import ConfigError, FieldPath, Problem
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.stages.metric import Metric
from fope_lab.stages.section import PositiveInt, Section


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
        """The number of worker processes of the stage."""
        return self.workers or max(1, int(self.gpus))

    @model_validator(mode="after")
    def _one_gpu_a_worker(self) -> Self:
        if self.gpus > 1 and self.gpus != int(self.gpus):
            message = f"found {self.gpus:g}, needs a fraction of one GPU or a whole number of them"
            raise ConfigError(Problem(("gpus",), message))
        if self.gpus > self.size:
            message = f"found {self.workers} for {self.gpus:g} GPUs; each worker has one at most"
            raise ConfigError(Problem(("workers",), message))
        if 0 < self.gpus < self.size and self.size > 1:
            message = f"found {self.size} for {self.gpus:g} GPU; several workers have one each"
            raise ConfigError(Problem(("workers",), message))
        return self


class StageConfig(Section):
    """What all kinds of stages have."""

    excluded_from_key = frozenset({"kind", "from_", "resources"})

    version: ClassVar[int] = 3  # the loss is computed in chunks of tokens
    entry_point: ClassVar[str]
    """The function that does the stage's work."""
    trains: ClassVar[bool] = False
    """Whether the stage trains a model, under the sweep's seeds."""
    user_facing: ClassVar[bool] = True
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
            raise ConfigError(Problem(("resources", name), message))
        return self

    def stands_alone(self) -> bool:
        """Whether the stage starts from no model of another stage."""
        return False

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The longest sequence in tokens that the model reads, and the field that says so; None
        where only running can tell."""
        return None

    def corpora(self) -> Mapping[str, Corpus]:
        """For a stage that trains nothing: the corpora whose held-out part the stage reads, by
        field; the first is `data.0`."""
        return {}

    def metrics(self) -> Iterable[Metric]:
        """The metrics that the stage logs, which claims, tables and figures may name."""
        return ()

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[tuple[FieldPath, str]]:
        """What can't be done with a tokenizer, by the field that asks for it."""
        return ()

    def parent_problems(self, parent: StageConfig) -> Iterable[tuple[FieldPath, str]]:
        """What can't be asked of the model that a stage leaves, by the field that asks for it."""
        return ()

    def identities(self) -> Mapping[str, Any]:
        """What the key has instead of some fields: the content of local files, by field.

        Raises fope_lab.data.problems.DataError.
        """
        return {}

    def missing_resource(self, store: Path | None) -> str | None:
        """What the stage can't run without and the store has not, and what to do about it."""
        return None


class ChildConfig(StageConfig):
    """What all stages that start from a model have."""

    from_: Annotated[str, Field(alias="from", min_length=1)]
