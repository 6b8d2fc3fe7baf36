"""Trains byte-level BPE on a corpus (Sennrich et al., arXiv 1508.07909; on bytes as in GPT-2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.recipe import SPECIAL_TOKENS, TrainedTokenizer

PIECE = 1 << 16
"""The number of characters passed to the trainer at once, since a document may be a whole book."""


def train_bpe(
    recipe: TrainedTokenizer,
    path: Path,
    progress: Callable[[int], None] = lambda documents: None,
) -> None:
    """Train a tokenizer on the training split of the corpus and write it to `path`.

    The result is deterministic. Text is split into bytes, so that no character is unknown.
    `progress(documents)` is called after each document; memory grows with the number of different
    words. Raises DataError if the corpus has no document.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    documents = 0

    def pieces() -> Iterator[str]:
        nonlocal documents
        for text in recipe.corpus.documents("train"):
            documents += 1
            for start in range(0, len(text), PIECE):
                yield str(text[start : start + PIECE])
            progress(documents)

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(pieces(), trainer)
    if not documents:
        raise DataError(f"the train split of {recipe.corpus.canonical()} has no document")
    tokenizer.save(str(path))


TRAINERS: Mapping[str, Callable[[TrainedTokenizer, Path, Callable[[int], None]], None]] = {
    "bpe": train_bpe
}
"""The training functions, by the value of `train` in a sweep file."""
