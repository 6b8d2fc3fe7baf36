"""Perplexity by context length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fope_lab.config.problems import FieldPath
from fope_lab.config.pydantic_errors import SectionError
from fope_lab.data.corpora.base import Corpus
from fope_lab.stages.evaluation import EvaluationConfig, ForwardPass
from fope_lab.stages.measure import Measure
from fope_lab.stages.section import Lengths, PositiveInt
from fope_lab.stages.sections import CorpusSection


class Perplexity(EvaluationConfig):
    """exp of the mean loss on held-out text, at each context length."""

    version = 4  # each sequence draws its own positions, where they are drawn
    entry_point = "fope_lab.evaluation.perplexity:run"

    kind: Literal["perplexity"]
    corpus: CorpusSection
    over: Annotated[
        CorpusSection | None,
        Field(description="another corpus: also the ratio of the perplexities, corpus over this"),
    ] = None
    lengths: Lengths
    method: Literal["chunked", "sliding"] = "chunked"
    stride: PositiveInt | None = None
    tokens: Annotated[
        PositiveInt | None, Field(description="of each text, at most; default all")
    ] = None
    average: Annotated[
        Literal["tokens", "windows"],
        Field(description="what has equal weight: every token, or every window's mean"),
    ] = "tokens"
    position_buckets: Annotated[
        PositiveInt | None,
        Field(description="points of a curve by position at the largest length; default none"),
    ] = None

    def corpora(self) -> Mapping[str, Corpus]:
        """The text, and the one that it is compared with."""
        texts = {"corpus": self.corpus}
        return texts if self.over is None else {**texts, "over": self.over}

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The largest window."""
        return ("lengths",), max(self.lengths)

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        """The windows at each length, of texts that are taken to have `tokens` tokens each, whose
        last one is predicted and not read."""
        if self.tokens is None:
            return None
        read = self.tokens - 1
        found = []
        for length in self.lengths:
            if self.stride is not None:
                found.append(ForwardPass(length, 1 + max(0, -(-(read - length) // self.stride))))
            else:
                found += [ForwardPass(length, read // length), ForwardPass(read % length, 1)]
        return found * len(self.corpora())

    def measures(self) -> Iterable[Measure]:
        """Perplexity and loss on `corpus`, its perplexity over that on `over`, and by position."""
        lengths = tuple(sorted(self.lengths))
        yield Measure("perplexity", "perplexity_by_length", lengths, self.corpus)
        yield Measure("loss_by_length", "loss_by_length", lengths, self.corpus)
        if self.over is not None:
            ratio = "perplexity_ratio"
            yield Measure(ratio, f"{ratio}_by_length", lengths, self.corpus)
        if self.position_buckets is not None:
            ends = range(1, self.position_buckets + 1)
            positions = tuple(lengths[-1] * end // self.position_buckets for end in ends)
            by_position = "perplexity_by_position"
            yield Measure(by_position, by_position, positions, self.corpus)

    @model_validator(mode="after")
    def _over_another_text(self) -> Self:
        if self.over is not None and self.over.canonical() == self.corpus.canonical():
            raise SectionError([(("over",), "is the corpus itself: every ratio would be 1")])
        return self

    @model_validator(mode="after")
    def _text_longer_than_a_window(self) -> Self:
        longest = max(self.lengths)
        if self.tokens is not None and self.tokens <= longest:
            message = f"found {self.tokens}, needs more than the largest length {longest}"
            raise SectionError([(("tokens",), message)])
        return self

    @model_validator(mode="after")
    def _bucket_of_a_position(self) -> Self:
        longest = max(self.lengths)
        if self.position_buckets is not None and self.position_buckets > longest:
            message = f"found {self.position_buckets}, needs at most the largest length {longest}"
            raise SectionError([(("position_buckets",), message)])
        return self

    @model_validator(mode="after")
    def _stride_of_a_sliding_window(self) -> Self:
        message = None
        if self.stride is None and self.method == "sliding":
            message = "is missing: method sliding needs a stride"
        elif self.stride is not None and self.method != "sliding":
            message = f"found {self.stride}, which has no effect with method {self.method}"
        elif self.stride is not None and self.stride > min(self.lengths):
            message = (
                f"found {self.stride}, needs at most the smallest length {min(self.lengths)}, so "
                "that no token between two windows is left out"
            )
        if message:
            raise SectionError([(("stride",), message)])
        return self
