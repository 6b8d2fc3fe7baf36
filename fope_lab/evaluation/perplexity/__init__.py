"""Perplexity by context length, on one text or on two (the maths is in losses.py).

Of two texts there is also the ratio of the perplexities: how much worse a model is on text of
another kind than it was trained on (FoPE, Fig. 6: PPL(C4)/PPL(Books)).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fope_lab.config.annotations import Doc
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import FieldPath, Problem, missing
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.evaluation.base import LengthsOption, ModelEvaluation
from fope_lab.stages.base import ForwardPass
from fope_lab.stages.metric import LENGTH, POSITION, Measurement, Metric
from fope_lab.stages.sections import CorpusSection, windows_prefix

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context
    from fope_lab.evaluation.perplexity.losses import PositionBucket

PERPLEXITY, LOSS = "perplexity_by_length", "loss_by_length"
BITS = "bits_per_byte_by_length"
RATIO, BY_POSITION = "perplexity_ratio_by_length", "perplexity_by_position"
PACKING = "documents end to end, an end-of-text token between them, windows across their ends"


@dataclass(frozen=True, kw_only=True)
class Perplexity(ModelEvaluation, kind="perplexity"):
    """The exponential of the mean loss on held-out text, at each context length."""

    version = 4  # each sequence draws its own positions, where they are drawn

    corpus: Annotated[CorpusSection, Doc("The corpus whose held-out text is read.")]
    over: Annotated[
        CorpusSection | None,
        Doc("A second corpus: the perplexity on `corpus` divided by that on it is logged, too."),
    ] = None
    lengths: LengthsOption
    method: Annotated[
        Literal["chunked", "sliding"],
        Doc("How the windows follow each other: end to end (chunked), or overlapping (sliding)."),
    ] = "chunked"
    stride: Annotated[
        PositiveInt | None, Doc("The number of tokens from one sliding window to the next.")
    ] = None
    tokens: Annotated[
        PositiveInt | None, Doc("The most tokens to read of each text; the default is all.")
    ] = None
    part: Annotated[
        Literal["all", "second-half"],
        Doc(
            "The part of the held-out text to read. second-half is what trainings with"
            " validation_part: first-half do not validate on."
        ),
    ] = "all"
    average: Annotated[
        Literal["tokens", "windows"],
        Doc("What has equal weight: every token, or the mean of every window."),
    ] = "tokens"
    position_buckets: Annotated[
        PositiveInt | None,
        Doc(
            "The number of points of a curve by position at the largest length; "
            "the default is no curve."
        ),
    ] = None

    def corpora(self) -> Mapping[str, Corpus]:
        texts = {"corpus": self.corpus}
        return texts if self.over is None else {**texts, "over": self.over}

    def prefix_in_key(self, tokenizer: TokenizerRecipe) -> str | None:
        return windows_prefix(self.prefix, tokenizer)

    def part_read(self) -> str | None:
        return self.part

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        return ("lengths",), max(self.lengths)

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        """The windows at each length, of texts that are taken to have `tokens` tokens each."""
        if self.tokens is None:
            return None
        read = self.tokens - 1
        passes = []
        for length in self.lengths:
            if self.stride is not None:
                windows = 1 + max(0, -(-(read - length) // self.stride))
                passes.append(ForwardPass(length, windows))
            else:
                passes.append(ForwardPass(length, read // length))
                passes.append(ForwardPass(read % length, 1))
        return passes * len(self.corpora())

    def metrics(self) -> Iterable[Metric]:
        curve: dict[str, Any] = {"better": "lower", "corpus": self.corpus, "axis": LENGTH}
        curve["xs"] = lengths = tuple(sorted(self.lengths))
        yield Metric(name=PERPLEXITY, short_name="perplexity", unit="perplexity", **curve)
        yield Metric(name=LOSS, short_name=LOSS, unit="nats", shown_as=PERPLEXITY, **curve)
        yield Metric(
            name=BITS,
            short_name="bits_per_byte",
            unit="number",
            shown_as=PERPLEXITY,
            across_tokenizers=True,
            **curve,
        )
        if self.over is not None:
            yield Metric(name=RATIO, short_name="perplexity_ratio", unit="ratio", **curve)
        if self.position_buckets is not None:
            ends = range(1, self.position_buckets + 1)
            curve |= {"axis": POSITION}
            curve["xs"] = tuple(lengths[-1] * end // self.position_buckets for end in ends)
            yield Metric(name=BY_POSITION, short_name=BY_POSITION, unit="perplexity", **curve)

    def problems(self) -> Iterable[Problem]:
        """A text or a window that is too short for the other options."""
        yield from super().problems()
        longest, shortest = max(self.lengths), min(self.lengths)
        if self.over is not None and self.over.canonical() == self.corpus.canonical():
            yield Problem(("over",), "is the corpus itself: every ratio would be 1")
        if self.tokens is not None and self.tokens <= longest:
            message = f"found {self.tokens}, needs more than the largest length {longest}"
            yield Problem(("tokens",), message)
        if self.position_buckets is not None and self.position_buckets > longest:
            message = f"found {self.position_buckets}, needs at most the largest length {longest}"
            yield Problem(("position_buckets",), message)
        if self.stride is None and self.method == "sliding":
            yield missing(("stride",), "method sliding needs a stride")
        elif self.stride is not None and self.method == "sliding" and self.stride > shortest:
            message = (
                f"found {self.stride}, needs at most the smallest length {shortest}, so that no "
                "token between two windows is left out"
            )
            yield Problem(("stride",), message)

    def idle_options(self) -> Mapping[str, str]:
        return {} if self.method == "sliding" else {"stride": f"method {self.method} has no stride"}

    def run(self, context: Context) -> dict[str, Any]:
        """Log perplexity, loss, bits per byte and, with `over`, the ratio at each length.

        Bits per byte are the summed loss of all predicted tokens, special ones too, over the bytes
        of their text in UTF-8: they compare models of different tokenizers. With
        `position_buckets`, x is the most tokens of context of a bucket's predictions, one more than
        its last position.
        """
        from fope_lab.evaluation.perplexity.losses import perplexity, text_bytes

        largest = max(self.lengths)
        purpose = f"perplexity at length {largest}"
        texts = {
            field: context.text(field, largest + 1, purpose, self.part).part(0, self.tokens)
            for field in self.corpora()
        }
        size = text_bytes(context.tokenizer, texts["corpus"])
        scoring = context.scoring(
            len(self.lengths) * sum(len(tokens) - 1 for tokens in texts.values())
        )
        sums: dict[str, Any] = {}
        tokens_read: dict[str, int] = {}
        by_position: list[PositionBucket] = []
        for length in self.lengths:
            results = {
                field: perplexity(
                    context.model,
                    tokens,
                    length,
                    method=self.method,
                    stride=self.stride,
                    prefix=context.tokenizer.prefix_ids,
                    **scoring.part(len(tokens) - 1),
                )
                for field, tokens in texts.items()
            }
            losses = {
                field: result.loss if self.average == "tokens" else result.window_loss
                for field, result in results.items()
            }
            values = {
                PERPLEXITY: math.exp(losses["corpus"]),
                LOSS: losses["corpus"],
                BITS: results["corpus"].loss_sum / math.log(2) / size,
            }
            if "over" in losses:
                values[RATIO] = math.exp(losses["corpus"] - losses["over"])
            count = results["corpus"].count
            measured = (
                Measurement(name=name, x=length, value=value, n=count)
                for name, value in values.items()
            )
            context.log(*measured)
            tokens_read[str(length)] = count
            sums[str(length)] = {field: result.as_json() for field, result in results.items()}
            if length == largest and self.position_buckets is not None:
                by_position = results["corpus"].by_position(self.position_buckets)
        for bucket in by_position:
            x, value = bucket.last_context, bucket.perplexity
            context.log(Measurement(name=BY_POSITION, x=x, value=value, n=bucket.count))
        context.keep(sums=sums, by_position=[dataclasses.asdict(bucket) for bucket in by_position])
        return {
            "method": self.method,
            "stride": self.stride,
            "average": self.average,
            "packing": PACKING,
            "prefix": list(context.tokenizer.prefix_ids),
            "tokens": tokens_read,
            "bytes": size,
        }
