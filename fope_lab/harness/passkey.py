"""The prompts and the score of the task fope_lab_passkey.

The prompts are those of fope-lab's own evaluation, so that the accuracies can be compared: a trial
is right if greedy decoding gives every token of the key. lm-evaluation-harness reads text, and
tokenizes it again. With the byte tokenizer the tokens are the same; other tokenizers may merge
some where text was cut at a token, which is warned about with the share of such prompts.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fope_lab.data.tasks.passkey import PromptForm, Trial, prompt_form
from fope_lab.data.tokenizers.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from datasets import DatasetDict

TRIALS = 1000
"""The default number of trials at each length, that of fope-lab's evaluation."""


def dataset(
    lengths: Sequence[int] | None = None,
    trials: int = TRIALS,
    form: str = "english",
    max_length: int | None = None,
    pretrained: str | None = None,
    tokenizer: str | None = None,
    **others: Any,
) -> DatasetDict:
    """Return the split `test`: `trials` prompts of exactly each of `lengths` tokens.

    `form` is english or symbolic. The other arguments are the model's, which the harness passes
    on: `max_length` must be at least the longest prompt, because the harness would cut prompts,
    and with them the key. Raises ValueError for a missing or wrong option, and DataError if the
    tokenizer can't write the prompts.
    """
    from datasets import Dataset, DatasetDict

    if not lengths:
        raise ValueError(
            "fope_lab_passkey needs the lengths of its prompts in tokens: "
            """--metadata '{"lengths": [64, 128]}'"""
        )
    if max_length is None or int(max_length) < max(lengths):
        raise ValueError(
            f"fope_lab_passkey needs max_length={max(lengths)} or more in --model_args, found "
            f"{max_length}: longer prompts would be cut"
        )
    name = tokenizer or pretrained
    if name is None:
        raise ValueError("fope_lab_passkey needs pretrained=… or tokenizer=… in --model_args")
    known = load_tokenizer(name)
    prompts = prompt_form(form, known)
    rows = [_row(known, prompts, length, trial) for length in lengths for trial in range(trials)]
    if changed := sum(not row["same_tokens"] for row in rows):
        warnings.warn(
            f"{changed} of {len(rows)} passkey prompts have other tokens when they are read as "
            "text; their lengths, and the accuracy, may differ from those of fope-lab",
            stacklevel=2,
        )
    return DatasetDict({"test": Dataset.from_list(rows)})


def process_results(
    doc: Mapping[str, Any], results: Sequence[tuple[float, bool]]
) -> dict[str, int]:
    """Return the accuracy of a trial, over all lengths and for its own."""
    [(_, greedy)] = results
    return {"acc": int(greedy), f"acc_{doc['length']}": int(greedy)}


def _row(tokenizer: Tokenizer, prompts: PromptForm, length: int, trial: int) -> dict[str, Any]:
    built = prompts.trial(length, trial)
    key = len(built.answer_ids)
    context = tokenizer.decode(built.input_ids[len(tokenizer.prefix_ids) : -key].tolist())
    answer = tokenizer.decode(built.answer_ids.tolist())
    return {
        "context": context,
        "answer": answer,
        "length": length,
        "depth": built.depth,
        "same_tokens": _same(tokenizer, built, context, answer),
    }


def _same(tokenizer: Tokenizer, built: Trial, context: str, answer: str) -> bool:
    """Whether the text has the tokens of the prompt, apart from those that begin every text."""
    ids = built.input_ids.tolist()[len(tokenizer.prefix_ids) :]
    before = ids[: -len(built.answer_ids)]
    return tokenizer.encode(context + answer) == ids and tokenizer.encode(context) == before
