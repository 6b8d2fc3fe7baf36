"""RULER's key-value retrieval and variable tracking, as a sweep file describes them.

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
    EnglishPrompts,
    RulerPrompts,
    SymbolicPrompts,
    distinct,
)
from fope_lab.data.tokenizers.tokenizer import Tokenizer

EXAMPLE_HOPS = 10


ADJECTIVES = (
    "able aged brave brief bright calm cheap clean clever cold cool crisp dark deep eager early "
    "empty equal faint fair famous fast fierce firm flat fresh gentle glad grand great happy heavy "
    "honest huge idle keen kind large late light lively lonely loud lucky mild modest narrow neat "
    "noble odd pale plain proud quick quiet rapid rare rich rough round shy silent simple"
)
NOUNS = (
    "anchor apple arrow badge barrel basket beach bell boat bottle branch bridge bucket button "
    "cabin camel candle canyon carpet castle cherry circle cloud coat corner cradle desert door "
    "dragon drum eagle engine falcon feather fence forest fountain garden glove hammer harbour "
    "helmet island jacket kettle ladder lantern lemon marble meadow mirror needle orchard paddle "
    "pencil pillow planet ribbon river rocket saddle shovel"
)


class KeyValuePrompts(RulerPrompts):
    """The part that both forms of key-value retrieval share."""

    of: KeyValueTask
    names: ClassVar[int]
    """The number of different keys in the form."""

    @property
    def statements(self) -> int:
        return self.of.keys

    @property
    def chance(self) -> float:
        """The accuracy of naming random values of the prompt: 1/keys for one query."""
        return 1 / math.perm(self.of.keys, self.of.queries)

    def words(self, questions: int) -> int:
        return 4 * self.of.keys + 2 * self.of.queries * questions

    def content(self, words: Words, questions: int) -> Content:
        """Distinct keys, and distinct values of `digits` digits without a leading 0."""
        count, queries, lowest = self.of.keys, self.of.queries, 10 ** (self.of.digits - 1)
        keys = distinct(words[: 2 * count], self.names)
        values = distinct(words[2 * count : 4 * count], 9 * lowest)
        pairs = [(key, str(lowest + value)) for key, value in zip(keys, values, strict=True)]
        rest = words[4 * count :][: 2 * queries * questions]
        queried = [distinct(part, count) for part in np.split(rest, questions)]
        return Content(
            [Block(self.statement(key, value)) for key, value in pairs],
            [self.question([pairs[i] for i in indices]) for indices in queried],
            queried[-1][0],
        )

    @abstractmethod
    def statement(self, key: int, value: str) -> Sequence[int]:
        """The tokens that state a key's value."""

    @abstractmethod
    def question(self, pairs: Sequence[tuple[int, str]]) -> Block:
        """The tokens that ask for the values of some keys, then the answer."""


class EnglishKeyValue(EnglishPrompts, KeyValuePrompts):
    """RULER's prompt (scripts/data/synthetic/constants.py and niah.py of NVIDIA/RULER)."""

    adjectives, nouns = ADJECTIVES.split(), NOUNS.split()
    names = len(adjectives) * len(nouns)
    tasks = (
        "A special magic number is hidden within the following text. Make sure to memorize it. "
        "I will quiz you about the number afterwards.\n",
        "Some special magic numbers are hidden within the following text. Make sure to memorize "
        "it. I will quiz you about the numbers afterwards.\n",
    )
    needle = "\nOne of the special magic numbers for {key} is: {value}.\n"
    questions = (
        "\nWhat is the special magic number for {query} mentioned in the provided text? "
        "The special magic number for {query} mentioned in the provided text is",
        "\nWhat are all the special magic numbers for {query} mentioned in the provided text? "
        "The special magic numbers for {query} mentioned in the provided text are",
    )
    """The questions for one query and for several."""

    def introduction(self) -> str:
        return self.tasks[self.of.queries > 1]

    def statement(self, key: int, value: str) -> Sequence[int]:
        return self.tokenizer.encode(self.needle.format(key=self._name(key), value=value))

    def question(self, pairs: Sequence[tuple[int, str]]) -> Block:
        query = listed([self._name(key) for key, _ in pairs])
        question = self.questions[self.of.queries > 1].format(query=query)
        return self.answered(question, f" {listed([value for _, value in pairs])}")

    def longest(self) -> Content:
        value = "1" * self.of.digits
        statements = [self.statement(key, value) for key in range(self.names)]
        sizes = np.array([len(statement) for statement in statements])
        keys = np.argsort(-sizes, kind="stable")[: self.of.keys].tolist()
        return Content(
            [Block(statements[key]) for key in keys],
            [self.question([(key, value) for key in keys[: self.of.queries]])],
            0,
        )

    def _name(self, key: int) -> str:
        adjective, noun = divmod(key, len(self.nouns))
        return f"{self.adjectives[adjective]}-{self.nouns[noun]}"


class SymbolicKeyValue(SymbolicPrompts, KeyValuePrompts):
    """Key-value retrieval with keys of one letter."""

    names = len(LETTERS)

    def statement(self, key: int, value: str) -> Sequence[int]:
        return self.spelt(MARKER + LETTERS[key] + value)

    def question(self, pairs: Sequence[tuple[int, str]]) -> Block:
        keys = "".join(LETTERS[key] for key, _ in pairs)
        answer = "".join(value for _, value in pairs)
        return Block(self.spelt(MARKER + keys + answer), len(answer))


def listed(items: Sequence[str]) -> str:
    """As RULER lists the keys of a question: "a", "a, and b", "a, b, and c"."""
    return ", and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))


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
