"""The symbols of small vocabularies that are known by a name: those of the algorithmic tasks.

Huang et al., "A Formal Framework for Understanding Length Generalization in Transformers", arXiv
2410.02140, train each task with a vocabulary of its own, so that a model never has to learn which
tokens do not occur. A name is `symbols:` and that of the task.
"""

from __future__ import annotations

import string
from collections.abc import Mapping

PREFIX = "symbols:"
"""The beginning of the names of tokenizers of symbols."""
BITS = ("0", "1")
NUMBERS = tuple(str(number) for number in range(150))
SYMBOLS: Mapping[str, tuple[str, ...]] = {
    f"{PREFIX}{task}": symbols
    for task, symbols in {
        "addition": (*BITS, "+", "="),
        "bin_majority": BITS,
        "bin_majority_interleave": BITS,
        "majority": tuple(string.ascii_lowercase),
        "parity": (*BITS, "e", "o"),
        "repeat_copy": ("a", "b"),
        "sort": NUMBERS,
        "unique_copy": NUMBERS,
    }.items()
}
"""The symbols of each tokenizer by its name; the id of a symbol is its place."""
SPECIAL_SYMBOLS = ("<bos>", "<sep>", "<eos>", "<pad>")
"""The beginning, the separator of input and answer, the end, and padding: their ids follow those of
the symbols, in this order."""
