"""The passkey task to train on: rows of keys in filler and questions for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from fope_lab.config.annotations import Doc, Interval
from fope_lab.data.problems import DataError
from fope_lab.data.tasks.base import PromptRows, Task
from fope_lab.data.tasks.passkey import prompt_form
from fope_lab.data.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class PasskeyTask(Task):
    """Passkey sequences to train on: a key in filler, then questions for it.

    `digits` is the key's length. A symbolic row asks for the key between 1 and `queries` times
    (default: as often as fits), uniformly drawn, the last time at its end: the more often, the
    denser the signal. Everything else is as in a trial. Only the answers have a loss.
    """

    task: ClassVar[str] = "passkey"

    form: Annotated[
        Literal["english", "symbolic"],
        Doc("How a prompt is written: in English, or in tokens without a language."),
    ] = "symbolic"
    digits: Annotated[int, Interval(ge=1, le=9), Doc("The number of digits of a key.")] = 5
    queries: Annotated[
        Annotated[int, Interval(ge=1)] | None,
        Doc("The number of keys that a sequence asks for; the default is as many as fit."),
    ] = None

    def __post_init__(self) -> None:
        if self.form == "english" and self.queries is not None:
            raise DataError("queries is for the symbolic form; English prompts ask once")

    def check(self, tokenizer: Tokenizer, length: int) -> None:
        prompt_form(self.form, tokenizer, self.digits).trial(length, 0)

    def rows(self, tokenizer: Tokenizer, length: int, seed: int) -> PromptRows:
        prompts = prompt_form(self.form, tokenizer, self.digits)
        return PromptRows(prompts, length, seed, self.queries)
