"""RULER's variable tracking, and both of its tasks as a sweep file describes them.

Variable tracking: chains of assignments, and a question about one value's variables.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError
from fope_lab.data.seeding import Words, below
from fope_lab.data.tasks.base import PromptRows, Task
from fope_lab.data.tasks.haystack import Block
from fope_lab.data.tasks.passkey import EnglishForm, Form
from fope_lab.data.tasks.ruler import (
    DIGITS,
    LETTERS,
    MARKER,
    Content,
    EnglishKeyValue,
    EnglishPrompts,
    RulerPrompts,
    SymbolicKeyValue,
    SymbolicPrompts,
    distinct,
)
from fope_lab.data.tokenizers.tokenizer import Tokenizer

EXAMPLE_HOPS = 10


class TrackingPrompts(RulerPrompts):
    """The part that both forms of variable tracking share."""

    of: VariableTrackingTask
    names: ClassVar[int]
    """The number of different variables in the form."""
    values: ClassVar[int]
    """The number of different values in the form."""

    @property
    def statements(self) -> int:
        return self.of.chains * (self.of.hops + 1)

    @property
    def chance(self) -> float:
        """The accuracy of naming hops + 1 random variables in the order of the text."""
        return 1 / math.comb(self.statements, self.of.hops + 1)

    def words(self, questions: int) -> int:
        return 3 * self.statements + 2 * self.of.chains + questions

    def content(self, words: Words, questions: int) -> Content:
        """Distinct variables and values, with the chains mixed uniformly."""
        chains, size = self.of.chains, self.of.hops + 1
        ends = np.cumsum([2 * self.statements, self.statements, 2 * chains])
        for_names, for_order, for_values, rest = np.split(words, ends)
        names = np.array(distinct(for_names, self.names)).reshape(chains, size)
        values = distinct(for_values, self.values)
        order = np.argsort(for_order, kind="stable") % chains  # the chain of each statement
        reached = [0] * chains
        statements, places = [], [0] * chains
        for place, chain in enumerate(order.tolist()):
            step, of_chain = reached[chain], names[chain].tolist()
            if step:
                given = self.hop(of_chain[step - 1], of_chain[step])
            else:
                given = self.start(values[chain], of_chain[0])
                places[chain] = place
            statements.append(Block(given))
            reached[chain] += 1
        queried = below(rest[:questions], chains)
        blocks = [self.question(values[chain], names[chain].tolist()) for chain in queried]
        return Content(statements, blocks, places[queried[-1]])

    @abstractmethod
    def start(self, value: int, variable: int) -> Sequence[int]:
        """The tokens that assign a value to a variable."""

    @abstractmethod
    def hop(self, source: int, variable: int) -> Sequence[int]:
        """The tokens that assign the value of `source` to a variable."""

    @abstractmethod
    def question(self, value: int, variables: Sequence[int]) -> Block:
        """The tokens that ask for a value's variables, then the answer."""


class EnglishTracking(EnglishPrompts, TrackingPrompts):
    """RULER's prompt (scripts/data/synthetic/constants.py and variable_tracking.py of
    NVIDIA/RULER). Its example is one chain of three-letter variables with the same number of hops,
    but at most ten."""

    names = len(LETTERS) ** 5
    values = 90_000
    task_line = (
        "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
    )
    asking = (
        "\nQuestion: Find all variables that are assigned the value {query} in the text above. "
        "Answer: According to the chain(s) of variable assignment in the text above, {num_v} "
        "variables are assgined the value {query}, they are:"
    )

    def introduction(self) -> str:
        return self._example() + self.task_line

    def start(self, value: int, variable: int) -> Sequence[int]:
        return self.tokenizer.encode(f"\nVAR {spell(variable, 5)} = {10_000 + value}\n")

    def hop(self, source: int, variable: int) -> Sequence[int]:
        return self.tokenizer.encode(f"\nVAR {spell(variable, 5)} = VAR {spell(source, 5)}\n")

    def question(self, value: int, variables: Sequence[int]) -> Block:
        names = [spell(variable, 5) for variable in variables]
        return self.answered(self._asking(10_000 + value, len(names)), f" {' '.join(names)}")

    def _example(self) -> str:
        """A solved prompt, the same for all trials."""
        count = min(self.of.hops, EXAMPLE_HOPS) + 1
        names = [spell(4321 * (i + 1) % len(LETTERS) ** 3, 3) for i in range(count)]
        sources = ["12345", *(f"VAR {name}" for name in names)]
        lines = [f"VAR {name} = {given}" for name, given in zip(names, sources, strict=False)]
        context = "\n".join(f"{EnglishForm.sentences}\n{line}" for line in lines)
        return f"{self.task_line}{context}{self._asking(12_345, count)} {' '.join(names)}\n\n"

    def _asking(self, value: int, count: int) -> str:
        return self.asking.format(query=value, num_v=count)


class SymbolicTracking(SymbolicPrompts, TrackingPrompts):
    """Variable tracking with variables of one letter and values of one digit."""

    names = len(LETTERS)
    values = len(DIGITS)

    def start(self, value: int, variable: int) -> Sequence[int]:
        return self.spelt(MARKER + DIGITS[value] + LETTERS[variable])

    def hop(self, source: int, variable: int) -> Sequence[int]:
        return self.spelt(MARKER + LETTERS[source] + LETTERS[variable])

    def question(self, value: int, variables: Sequence[int]) -> Block:
        answer = "".join(LETTERS[variable] for variable in variables)
        return Block(self.spelt(MARKER + DIGITS[value] + answer), len(answer))


def spell(number: int, letters: int) -> str:
    """A variable's name: its number in base 26, with `letters` letters."""
    name = ""
    for _ in range(letters):
        number, digit = divmod(number, len(LETTERS))
        name = LETTERS[digit] + name
    return name


@dataclass(frozen=True, kw_only=True)
class RulerTask(Task):
    """What both tasks share. A symbolic row to train on asks between 1 and `questions` times
    (default: as often as fits), the last time at its end; only the answers have a loss."""

    forms: ClassVar[Mapping[str, Any]]
    """What builds the prompts in each form."""

    form: Form = "symbolic"
    questions: Annotated[
        PositiveInt | None,
        Doc("The number of questions of a sequence; the default is as many as fit."),
    ] = None

    def __post_init__(self) -> None:
        if self.form == "english" and self.questions is not None:
            raise DataError("questions is for the symbolic form; English prompts ask once")

    def prompts(self, tokenizer: Tokenizer, text: Any | None = None) -> Any:
        """What builds the prompts; `text` (n,) are token ids to hide the statements in, in English
        only. Raises DataError."""
        return self.forms[self.form](tokenizer, text, self)

    def check(self, tokenizer: Tokenizer, length: int) -> None:
        self.prompts(tokenizer).check(length)

    def rows(self, tokenizer: Tokenizer, length: int, seed: int) -> PromptRows:
        prompts = self.prompts(tokenizer)
        prompts.check(length + 1)
        questions = 1 if self.form == "english" else self.questions
        return PromptRows(prompts.training_rows, length, seed, questions)


@dataclass(frozen=True, kw_only=True)
class KeyValueTask(RulerTask):
    """`keys` keys with a value of `digits` digits each, of which `queries` are asked for."""

    task: ClassVar[str] = "key-value"
    forms: ClassVar = {"english": EnglishKeyValue, "symbolic": SymbolicKeyValue}

    keys: Annotated[PositiveInt, Doc("The number of keys that a sequence holds.")] = 4
    queries: Annotated[PositiveInt, Doc("The number of keys that a question asks for.")] = 1
    digits: Annotated[int, Interval(ge=1, le=9), Doc("The number of digits of a value.")] = 7

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.forms[self.form].names
        if self.keys > names:
            raise _wrong("keys", self.keys, f"at most {names} in the {self.form} form")
        if self.keys > 9 * 10 ** (self.digits - 1):
            raise _wrong("keys", self.keys, f"no more than values of {self.digits} digits")
        if self.queries > self.keys:
            raise _wrong("queries", self.queries, f"at most {self.keys}, the number of keys")


@dataclass(frozen=True, kw_only=True)
class VariableTrackingTask(RulerTask):
    """`chains` chains of variables, each `hops` assignments after the first, of which one is asked
    for."""

    task: ClassVar[str] = "variable-tracking"
    forms: ClassVar = {"english": EnglishTracking, "symbolic": SymbolicTracking}

    chains: Annotated[PositiveInt, Doc("The number of chains of variables.")] = 1
    hops: Annotated[PositiveInt, Doc("The number of assignments of a chain.")] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        form = self.forms[self.form]
        if self.chains > form.values:
            raise _wrong("chains", self.chains, f"at most {form.values} in the {self.form} form")
        if self.chains * (self.hops + 1) > form.names:
            limit = form.names // self.chains - 1
            message = f"at most {limit}: the {self.form} form has {form.names} variables"
            raise _wrong("hops", self.hops, message)


def _wrong(field: str, found: int, needs: str) -> DataError:
    return DataError(Problem((field,), f"found {found}, needs {needs}"))
