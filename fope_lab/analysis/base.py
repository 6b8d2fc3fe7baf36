"""What an analysis is: options, a computation that gives arrays, and a figure of them.

A file of this package defines one. Its dataclass has the options of a sweep file as fields; the
mathematics are functions of arrays beside it, which notebooks call as they are. torch and
matplotlib are imported inside them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.named_types import NamedTypes, given_options
from fope_lab.config.options import Registry
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.embeddings.spec import named, parts_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fope_lab.model.decoder import Decoder

Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]
"""What an analysis gives, by name."""
Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""
Needs = Literal["nothing", "model", "text"]
"""What an analysis looks at: nothing, a model, or a model that reads a text."""

# Options of several analyses; rotation.py has those of a rotation.
Sequences = Annotated[int, Interval(ge=1), Doc("The number of passages that are read.")]
Seed = Annotated[int, Interval(ge=0), Doc("The seed of all random draws.")]

ANALYSIS_TYPES: NamedTypes[Analysis] = NamedTypes("fope_lab.analysis")
"""Every analysis: a class in a file of this package, of a paper or of another plug-in."""
ANALYSES: Registry[Analysis] = Registry("analysis", ANALYSIS_TYPES, error=DataError)
"""Every analysis by name, as a sweep file gives it: `decay`, `{type: decay, option: value}`."""
parse_analysis = ANALYSES.parse
analysis_names = ANALYSES.names
analysis_json_schema = ANALYSES.json_schema


@dataclass(frozen=True)
class Subject:
    """A model in eval mode, its tokenizer, and `tokens` (n,) of the text that it is to read: int64,
    as many as `Analysis.tokens` asks for; none for an analysis that needs no text."""

    model: Decoder
    tokenizer: Tokenizer
    tokens: NDArray[Any]


class Analysis(ABC):
    """A frozen dataclass of options.

    `source` names the paper and figure, `says` what the paper reads off that figure, in our words.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    says: ClassVar[str]
    needs: ClassVar[Needs]
    version: ClassVar[int] = 1
    """Part of a stage's key. Raise it when the same options give other numbers than before."""
    key_name: ClassVar[str]
    """What a stage's key calls it, beside a version other than 1."""

    def __init_subclass__(cls, *, name: str, source: str, says: str, needs: Needs) -> None:
        super().__init_subclass__()
        cls.name, cls.source, cls.says, cls.needs = name, source, says, needs
        cls.key_name = f"analysis {name}"
        ANALYSIS_TYPES.register(name, cls)

    @property
    def more_parts(self) -> Iterator[type[Any]]:
        """The classes of the embeddings that the analysis builds itself, of the presets that its
        options `embedding` and `embeddings` name."""
        one = getattr(self, "embedding", None)
        for preset in (*([] if one is None else [one]), *getattr(self, "embeddings", ())):
            yield from (part.kind for part in parts_of(named(preset).composition))

    def canonical(self) -> dict[str, Any]:
        """The shortest description; parsing it gives the analysis back."""
        return {"type": self.name, **given_options(self)}

    @property
    def tokens(self) -> int:
        """How many tokens of text are read, if any."""
        return 0

    @property
    def number_words(self) -> Mapping[str, str]:
        """The words, with the unit after a comma, for each name that `numbers` can return with
        these options, known before it runs.

        What a model decides may leave some of them out. A claim can name only what is here.
        """
        return {}

    @property
    def curves(self) -> Mapping[str, Sequence[int]]:
        """The curves over the position of a token, by name, each with its positions; tables, papers
        and claims can name them as metrics. They depend on the options alone."""
        return {}

    def curve_values(self, arrays: Arrays) -> Mapping[str, Sequence[float]]:
        """The values of each of `curves` at its positions."""
        return {}

    @abstractmethod
    def compute(self, subject: Any, progress: Progress) -> Arrays:
        """The arrays that the figure is drawn from; `subject` is a Subject, or None if nothing is
        needed.

        Raises fope_lab.data.problems.DataError for a model that can't be analysed so.
        """

    @abstractmethod
    def draw(self, arrays: Arrays) -> Figure:
        """A matplotlib figure in the stand-in colours of fope_lab/drawing/svg.py."""

    def svg(self, arrays: Arrays) -> str:
        """The figure as a file of its own, which describes itself by what the analysis says."""
        from fope_lab.drawing.svg import standalone_svg

        return standalone_svg(self.draw(arrays), self.name, self.says)

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        """Single numbers beside the figure, of any type, by names that begin with a letter.

        Reports and MLflow show them in their `number_words`. They are no metrics: no table or
        paper's file can name them.
        """
        return {}
