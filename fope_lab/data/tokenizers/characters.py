"""A token for each character of a corpus, as in the character-level models of nanoGPT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.problems import Problem, in_few_words
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.trained import SPECIAL_TOKENS, TrainedTokenizer

UNKNOWN = "<|unknown|>"
"""The token of every character that the corpus does not have."""


@dataclass(frozen=True, kw_only=True)
class Characters(TrainedTokenizer):
    """A tokenizer with a token for each character that the corpus has, held-out part included."""

    method = "characters"

    vocabulary: Annotated[
        int,
        Interval(ge=len(SPECIAL_TOKENS) + 2, le=1 << 20),
        Doc("The most tokens: the characters, end of text, padding, and one for any other."),
    ]

    def write(self, path: Path, progress: Callable[[int], None] = lambda documents: None) -> None:
        """Write the tokenizer, whose ids are in the order of the characters' code points.

        Raises DataError also if the corpus has more characters than the vocabulary has room for.
        """
        from tokenizers import Tokenizer, decoders, models

        found: set[str] = set()
        documents = 0
        for split in ("train", "validation"):
            for text in self.corpus.documents(split):
                documents += 1
                found.update(str(text))
                progress(documents)
        named = in_few_words(self.corpus.canonical())
        if not found:
            raise DataError(f"the corpus ({named}) has no character")
        tokens = [*SPECIAL_TOKENS, UNKNOWN, *sorted(found)]
        if len(tokens) > self.vocabulary:
            message = (
                f"found {self.vocabulary}, but the corpus ({named}) has {len(found)} characters"
            )
            special = len(tokens) - len(found)
            needs = f"at least {len(tokens)}, of which {special} are special tokens"
            raise DataError(Problem(("vocabulary",), message, needs))
        ids = {token: number for number, token in enumerate(tokens)}
        # Without merges each character of a text is a token of its own.
        tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[], unk_token=UNKNOWN))
        tokenizer.add_special_tokens([*SPECIAL_TOKENS, UNKNOWN])
        tokenizer.decoder = decoders.Fuse()
        tokenizer.save(str(path))
