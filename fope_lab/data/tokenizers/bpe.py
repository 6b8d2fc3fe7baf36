"""Byte-level BPE (Sennrich et al., arXiv 1508.07909; on bytes as in GPT-2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fope_lab.config.problems import in_few_words
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.trained import SPECIAL_TOKENS, TrainedTokenizer

PIECE = 1 << 16
"""The number of characters passed to the trainer at once, since a document may be a whole book."""


@dataclass(frozen=True, kw_only=True)
class ByteLevelBPE(TrainedTokenizer):
    """A tokenizer that is trained on a corpus: byte-level BPE, which can write any text."""

    method = "bpe"

    def write(self, path: Path, progress: Callable[[int], None] = lambda documents: None) -> None:
        """Train the tokenizer and write it; memory grows with the number of different words."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        documents = 0

        def pieces() -> Iterator[str]:
            nonlocal documents
            for text in self.corpus.documents("train"):
                documents += 1
                for start in range(0, len(text), PIECE):
                    yield str(text[start : start + PIECE])
                progress(documents)

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocabulary,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(pieces(), trainer)
        if not documents:
            raise DataError(
                f"the train split of the corpus ({in_few_words(self.corpus.canonical())}) has no"
                " document"
            )
        tokenizer.save(str(path))
