"""RULER's tasks as a sweep file describes them: to train on, and to measure."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError
from fope_lab.data.tasks.base import PromptRows, Task
from fope_lab.data.tasks.haystack import HeldOutText
from fope_lab.data.tasks.ruler import RulerPrompts
from fope_lab.data.tasks.ruler_key_value import KEY_VALUE_FORMS
from fope_lab.data.tasks.ruler_tracking import TRACKING_FORMS
from fope_lab.data.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class RulerTask(Task):
    """What both tasks share. A symbolic row to train on asks between 1 and `questions` times
    (default: as often as fits), the last time at its end; only the answers have a loss."""

    form: Annotated[
        Literal["english", "symbolic"],
        Doc("How a prompt is written: in English, or in tokens without a language."),
    ] = "symbolic"
    questions: Annotated[
        Annotated[int, Interval(ge=1)] | None,
        Doc("The number of questions of a sequence; the default is as many as fit."),
    ] = None

    def __post_init__(self) -> None:
        if self.form == "english" and self.questions is not None:
            raise DataError("questions is for the symbolic form; English prompts ask once")

    @abstractmethod
    def prompts(self, tokenizer: Tokenizer, text: Any | None = None) -> RulerPrompts:
        """What builds the prompts; `text` (n,) are token ids to hide the statements in, which only
        the English form takes. Raises DataError."""

    def check(self, tokenizer: Tokenizer, length: int) -> None:
        self.prompts(tokenizer).check(length)

    def rows(self, tokenizer: Tokenizer, length: int, seed: int) -> PromptRows:
        prompts = self.prompts(tokenizer)
        prompts.check(length + 1)
        return PromptRows(prompts, length, seed, 1 if self.form == "english" else self.questions)


@dataclass(frozen=True, kw_only=True)
class KeyValueTask(RulerTask):
    """`keys` keys with a value of `digits` digits each, of which `queries` are asked for."""

    task: ClassVar[str] = "key-value"

    keys: Annotated[int, Interval(ge=1), Doc("The number of keys that a sequence holds.")] = 4
    queries: Annotated[int, Interval(ge=1), Doc("The number of keys that a question asks for.")] = 1
    digits: Annotated[int, Interval(ge=1, le=9), Doc("The number of digits of a value.")] = 7

    def __post_init__(self) -> None:
        super().__post_init__()
        names = KEY_VALUE_FORMS[self.form].names
        if self.keys > names:
            raise _wrong("keys", self.keys, f"at most {names} in the {self.form} form")
        if self.keys > 9 * 10 ** (self.digits - 1):
            raise _wrong("keys", self.keys, f"no more than values of {self.digits} digits")
        if self.queries > self.keys:
            raise _wrong("queries", self.queries, f"at most {self.keys}, the number of keys")

    def prompts(self, tokenizer: Tokenizer, text: Any | None = None) -> RulerPrompts:
        haystack = None if text is None else HeldOutText(text)
        options = (self.keys, self.queries, self.digits)
        return KEY_VALUE_FORMS[self.form](tokenizer, haystack, *options)


@dataclass(frozen=True, kw_only=True)
class VariableTrackingTask(RulerTask):
    """`chains` chains of variables, each `hops` assignments after the first, of which one is asked
    for."""

    task: ClassVar[str] = "variable-tracking"

    chains: Annotated[int, Interval(ge=1), Doc("The number of chains of variables.")] = 1
    hops: Annotated[int, Interval(ge=1), Doc("The number of assignments of a chain.")] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        form = TRACKING_FORMS[self.form]
        if self.chains > form.values:
            raise _wrong("chains", self.chains, f"at most {form.values} in the {self.form} form")
        if self.chains * (self.hops + 1) > form.names:
            limit = form.names // self.chains - 1
            message = f"at most {limit}: the {self.form} form has {form.names} variables"
            raise _wrong("hops", self.hops, message)

    def prompts(self, tokenizer: Tokenizer, text: Any | None = None) -> RulerPrompts:
        haystack = None if text is None else HeldOutText(text)
        return TRACKING_FORMS[self.form](tokenizer, haystack, self.chains, self.hops)


def _wrong(field: str, found: int, needs: str) -> DataError:
    return DataError(Problem((field,), f"found {found}, needs {needs}"))
