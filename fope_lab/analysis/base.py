"""What an analysis is: options, a computation that gives arrays, and a figure of them.

A file of this package defines one. Its dataclass has the options of a sweep file as fields; the
mathematics are functions of arrays beside it, which notebooks call as they are. torch and
matplotlib are imported inside them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from numpy.typing import NDArray

from fope_lab.config.named_types import NamedTypes, given_options
from fope_lab.config.registry import Registry
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fope_lab.model.decoder import Decoder

Arrays = Mapping[str, NDArray[Any]]
"""What an analysis gives, by name."""
Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""
ARRAYS, FIGURE = "arrays.npz", "figure.svg"
"""The files that a stage which analyses leaves."""
Needs = Literal["nothing", "model", "text"]
"""What an analysis looks at: nothing, a model, or a model that reads a text."""


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


@dataclass(frozen=True)
class NumberWords:
    """What people read in place of the names of numbers, with the unit after a comma.

    `patterns` has the words by the pattern of a name: a part in braces, such as
    "{kind}_fast_share", stands for any text, which the words repeat. `values` has the words for
    such texts, by their patterns; any other stands as it is, with hyphens for underscores.
    """

    patterns: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)

    def of(self, name: str) -> str:
        """Return the words for a name; without any, the name without underscores."""
        return self.declared(name) or name.replace("_", " ")

    def declared(self, name: str) -> str | None:
        """Return the words of the first pattern that a name fits; None if it fits none."""
        for pattern, words in self.patterns.items():
            parts = re.split(r"\{(\w+)\}", pattern)  # every second one is a name in braces
            expression = "".join(
                f"(?P<{part}>.+?)" if i % 2 else re.escape(part) for i, part in enumerate(parts)
            )
            if match := re.fullmatch(expression, name):
                said = NumberWords(self.values)
                texts = match.groupdict().items()
                return words.format(
                    **{part: said.declared(text) or text.replace("_", "-") for part, text in texts}
                )
        return None


class Analysis(ABC):
    """A frozen dataclass of options.

    `source` names the paper and figure, `says` what the paper reads off that figure, in our words.
    `number_words` has the words for the names of `numbers`, which are for programs.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    says: ClassVar[str]
    needs: ClassVar[Needs]
    number_words: ClassVar[NumberWords] = NumberWords()
    version: ClassVar[int] = 1
    """Part of a stage's key. Raise it when the same options give other numbers than before."""

    def __init_subclass__(cls, *, name: str, source: str, says: str, needs: Needs) -> None:
        super().__init_subclass__()
        cls.name, cls.source, cls.says, cls.needs = name, source, says, needs
        ANALYSIS_TYPES.register(name, cls)

    @property
    def presets(self) -> tuple[str, ...]:
        """The embeddings that the analysis builds itself: its options `embedding`, `embeddings`."""
        one = getattr(self, "embedding", None)
        return (*([] if one is None else [one]), *getattr(self, "embeddings", ()))

    def canonical(self) -> dict[str, Any]:
        """The shortest description; parsing it gives the analysis back."""
        return {"type": self.name, **given_options(self)}

    @property
    def tokens(self) -> int:
        """How many tokens of text are read, if any."""
        return 0

    @property
    def number_names(self) -> tuple[str, ...]:
        """The names of all that `numbers` can return with these options, known before it runs.

        What a model decides may leave some of them out. A claim can name only what is here.
        """
        return ()

    @property
    def curves(self) -> Mapping[str, Sequence[int]]:
        """The curves over the position of a token, by name, each with its positions; tables, papers
        and claims can name them as metrics. They depend on the options alone."""
        return {}

    def curve_values(self, arrays: Arrays) -> Mapping[str, Sequence[float]]:
        """The values of each of `curves` at its positions."""
        return {}

    @abstractmethod
    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
        """The arrays that the figure is drawn from; `subject` is None if nothing is needed.

        Raises fope_lab.data.problems.DataError for a model that can't be analysed so.
        """

    @abstractmethod
    def draw(self, arrays: Arrays) -> Figure:
        """A matplotlib figure in the stand-in colours of fope_lab/drawing/svg.py."""

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Single numbers beside the figure, by names that begin with a letter.

        Reports and MLflow show them, and a claim can name those that `number_names` declares. They
        are no metrics: no table or paper's file can name them.
        """
        return {}
