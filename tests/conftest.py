"""For all tests: how many examples, which files first, Ctrl-C, and a byte-level BPE tokenizer."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# No test fails because the machine does something else, too. Each run tries other examples.
settings.register_profile("untimed", deadline=None, max_examples=50)
settings.load_profile("untimed")

TEXT = "The pass key is 12345. Remember it. The grass is green. The sky is blue. 123 450 99 10"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put first the files that start Ray, and then those that start other processes: whichever
    process got such a one last would end last."""
    long = {item.path for item in items if item.get_closest_marker("cluster")}
    waits = ("trainers", "tracking")
    items.sort(key=lambda item: (item.path not in long, item.path.parent.name not in waits))


def pytest_collection() -> None:
    """What is imported stays: the garbage collector looks through it in vain, again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """And it never looks through it again, nor often through what tests leave."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """What is started in the background ignores Ctrl-C, and so would all that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Nothing here outlives a power failure, and waiting for the disk takes most of a write."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def unset_columns() -> None:
    """What is printed into a pipe is as wide as it is by default, whatever terminal this is."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session")
def make_bpe() -> Callable[..., PreTrainedTokenizerFast]:
    """Call with the number of merges, and bos=True for one that puts <s> before every text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    def make(merges: int = 300, bos: bool = False) -> PreTrainedTokenizerFast:
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=258 + merges,
            special_tokens=["<|endoftext|>", "<s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
        backend.train_from_iterator([TEXT], trainer)
        if bos:
            backend.post_processor = processors.TemplateProcessing(
                single="<s> $A", special_tokens=[("<s>", 1)]
            )
        return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")

    return make
