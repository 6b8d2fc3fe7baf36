"""Corpora in the format of Hugging Face `datasets`: from the hub, or from a local folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from fope_lab.config.annotations import Doc
from fope_lab.config.named_types import given_options
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import Problem, missing, unknown_name
from fope_lab.data.chat import ASSISTANT, Chat
from fope_lab.data.corpora.base import Corpus, Kind, Pair, Split, characters, sha256_of, split_items
from fope_lab.data.corpora.files import file_sha256, saved_splits
from fope_lab.data.problems import DataError
from fope_lab.data.seeding import permutation

LOCAL = ("/", "./", "../", "~")


class HubOrFolder:
    """Part of a dataclass: `dataset` is a name on the hub, which needs a `revision` (the commit's
    hash), or a local folder, whose path starts with / ./ ../ or ~."""

    dataset: str
    revision: str | None

    @property
    def is_local(self) -> bool:
        return self.dataset.startswith(LOCAL)

    def resolved(self, base: Path) -> Self:
        """A copy with an absolute folder; a relative one is looked up below `base`, then below the
        current directory. Raises DataError if there is none, or if the revision is missing or
        unexpected."""
        if self.is_local and self.revision is not None:
            message = f"{self.dataset} is a local folder, which has no revision"
            raise DataError(Problem(("revision",), message))
        if not self.is_local:
            if self.revision is None:
                commits = f"https://huggingface.co/datasets/{self.dataset}/commits/main"
                why = f"pin {self.dataset} to a commit, shown at {commits}"
                raise DataError(missing(("revision",), why))
            return self
        given = os.path.expanduser(self.dataset)
        tried = [os.path.abspath(place / given) for place in (base, Path.cwd())]
        for folder in tried:
            if os.path.isdir(folder):
                return replace(self, dataset=folder)  # type: ignore[type-var]
        message = f"no folder {' nor '.join(dict.fromkeys(tried))}"
        raise DataError(Problem(("dataset",), message))


@dataclass(frozen=True, kw_only=True)
class Dataset(HubOrFolder, Corpus):
    """Text from a dataset of the Hugging Face hub, or of a local folder in the same format.

    `dataset` is a name on the hub, which needs a `revision` (the commit's hash), or a folder whose
    path starts with / ./ ../ or ~. `limit` is the number of rows of `split` to read. Without a
    `validation_split`, every tenth of these rows is held out. Rows are streamed; empty rows, and
    those shorter than `min_characters`, are skipped.
    """

    name = "dataset"
    shorthand: ClassVar[str | None] = "dataset"

    dataset: Annotated[str, Doc("The name of the dataset on the hub.")]
    config: Annotated[
        str | None, Doc("The configuration of the dataset; the default is its own.")
    ] = None
    split: Annotated[str, Doc("The split to train on.")] = "train"
    validation_split: Annotated[
        str | None, Doc("The split to hold out; the default holds out a part of `split`.")
    ] = None
    revision: Annotated[str | None, Doc("The commit of the dataset.")] = None
    limit: Annotated[PositiveInt | None, Doc("The largest number of documents to read.")] = None
    validation_limit: Annotated[
        PositiveInt | None, Doc("The largest number of documents to hold out.")
    ] = None
    min_characters: Annotated[
        PositiveInt | None, Doc("The least characters of a document; shorter ones are skipped.")
    ] = None
    file_order: Annotated[
        Literal["listed", "shuffled"],
        Doc(
            "The order in which the files of a split are read. shuffled: a random order, the same"
            " every time, so that a limit takes whole files from anywhere and not the first ones."
        ),
    ] = "listed"
    column: Annotated[str, Doc("The column to read.")] = "text"

    def resolved(self, base: Path) -> Self:
        if self.revision is None and os.path.isabs(self.dataset):
            return self  # what reads the folder says whether it is there
        return super().resolved(base)

    def places(self) -> tuple[str, ...]:
        return (self.dataset,) if self.is_local else ()

    def placed(self, base: Path, paths: Sequence[str]) -> dict[str, Any]:
        return {"dataset": os.path.abspath(base / os.path.expanduser(self.dataset))}

    def local_files(self) -> list[str]:
        if not self.is_local:
            return []
        folder = Path(self.dataset)
        if not folder.is_dir():
            raise DataError(Problem(("dataset",), f"no folder {folder}"))
        return [
            str(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not any(p[0] == "." for p in path.relative_to(folder).parts)
        ]

    def check(self) -> None:
        saved = saved_splits(Path(self.dataset)) if self.is_local else None
        names = {"split": self.split, "validation_split": self.validation_split}
        if saved == []:
            names["config"] = self.config
            for field, name in names.items():
                if name is not None and (field, name) != ("split", type(self).split):
                    fault = f"found {name!r}, but {self.dataset} is a saved dataset without splits"
                    raise DataError(Problem((field,), fault))
        for field, name in names.items():
            if saved and name is not None and name not in saved:
                raise DataError(unknown_name((field,), f"split of {self.dataset}", name, saved))

    def held_out(self) -> str:
        return f"the split {split}" if (split := self.validation_split) else super().held_out()

    def identity(self) -> dict[str, Any]:
        options = given_options(self)
        if self.is_local:
            folder = Path(options.pop("dataset"))
            options["sha256"] = sha256_of(
                part
                for path in map(Path, self.local_files())
                for part in (str(path.relative_to(folder)).encode(), file_sha256(path).encode())
            )
        return {"type": self.name, **options}

    def documents(self, split: Split) -> Iterator[Any]:
        least = self.min_characters or 0
        documents = filter(None, map(self._document, self._rows(split)))
        wanted = (document for document in documents if characters(document) >= least)
        return islice(wanted, self.validation_limit if split == "validation" else None)

    def _document(self, row: Mapping[str, Any]) -> Any:
        """The document of a row; false for one that is skipped."""
        return self._text(row, self.column)

    def _value(self, row: Mapping[str, Any], column: str) -> Any:
        if column not in row:
            raise self._error(f" has no column {column!r} (it has: {', '.join(sorted(row))})")
        return row[column]

    def _text(self, row: Mapping[str, Any], column: str) -> str:
        text = self._value(row, column)
        if not isinstance(text, str):
            raise self._error(f": a row of column {column!r} holds {text!r}, needs text")
        return text

    def _error(self, what: str) -> DataError:
        return DataError(f"{self.dataset}{what}", (self.name,))

    def _rows(self, split: Split) -> Iterator[Mapping[str, Any]]:
        if split == "validation" and self.validation_split is not None:
            return self._stream(self.validation_split)
        rows = islice(self._stream(self.split), self.limit)
        return rows if self.validation_split is not None else split_items(rows, split)

    def _stream(self, split: str) -> Iterator[Mapping[str, Any]]:
        import datasets

        if not self.is_local and os.path.exists(self.dataset):
            raise self._error(
                " is a name on the hub, but `datasets` would read the folder "
                f"{os.path.abspath(self.dataset)}; write ./{self.dataset} or move the folder"
            )
        try:
            saved = saved_splits(Path(self.dataset)) if self.is_local else None
            if saved is not None:
                self.check()
                folder = os.path.join(self.dataset, split) if saved else self.dataset
                stream = datasets.load_from_disk(folder).to_iterable_dataset()
            else:
                stream = datasets.load_dataset(
                    self.dataset, self.config, split=split, revision=self.revision, streaming=True
                )
        except DataError:
            raise
        except (OSError, ValueError, RuntimeError) as error:
            zstd = "; `pip install zstandard` adds it" if "type zstd not" in str(error) else ""
            raise self._error(
                f" (config {self.config}, split {split}, revision {self.revision}) can't be loaded:"
                f" {error}{zstd}. Without the hub, give a local folder in the same format."
            ) from error
        if self.file_order == "listed":
            yield from stream
            return
        # The order depends on the number of files only: a local folder is the same wherever it is.
        files = stream.num_shards
        for index in permutation(("files of a dataset",), files).tolist():
            yield from stream.shard(files, index)


@dataclass(frozen=True, kw_only=True)
class DatasetPairs(Dataset):
    """Supervised pairs from two columns of a dataset of the hub or a local folder."""

    name = "dataset-pairs"
    kind: ClassVar[Kind] = "pairs"
    shorthand = None

    column: Annotated[str, Doc("The column to read.")] = "prompt"
    answer_column: Annotated[str, Doc("The column of the answers.")] = "answer"

    def _document(self, row: Mapping[str, Any]) -> Pair | str | None:
        pair = self._text(row, self.column), self._text(row, self.answer_column)
        return pair if all(pair) else None


@dataclass(frozen=True, kw_only=True)
class DatasetJoined(DatasetPairs):
    """Text from two columns of a dataset, such as FLAN's inputs and targets.

    The dataset is on the hub or in a local folder. The second column follows the first on a new
    line; the loss is on both.
    """

    name = "dataset-joined"
    kind = "text"

    def _document(self, row: Mapping[str, Any]) -> str:
        pair = self._text(row, self.column), self._text(row, self.answer_column)
        return "\n".join(pair) if any(pair) else ""


@dataclass(frozen=True, kw_only=True)
class DatasetChat(Dataset):
    """Chats from a dataset of the hub or a local folder: lists of messages with role and content.

    Chats in which the assistant says nothing are skipped, like empty texts.
    """

    name = "dataset-chat"
    kind = "chats"
    shorthand = None

    column: Annotated[str, Doc("The column to read.")] = "messages"

    def _document(self, row: Mapping[str, Any]) -> Chat:
        messages = self._value(row, self.column)
        if not isinstance(messages, list) or not all(map(_is_message, messages)):
            raise self._error(
                f": a row of column {self.column!r} holds {str(messages)[:200]}, needs a list of "
                "messages with a role and a content, both text"
            )
        if not any(one["role"] == ASSISTANT and one["content"] for one in messages):
            return []
        return [{"role": one["role"], "content": one["content"]} for one in messages]


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(value.get(name), str) for name in ("role", "content")
    )


PRESETS: dict[str, Dataset] = {
    # 25 million documents are some 11 billion tokens, more than the longest published run reads.
    "c4": Dataset(
        dataset="allenai/c4",
        config="en",
        validation_split="validation",
        revision="1588ec454efa1a09f29cd18ddd04fe05fc8653a2",
        limit=25_000_000,
        validation_limit=20_000,
    ),
    "gutenberg": Dataset(
        dataset="sedthh/gutenberg_english",
        revision="28973b04f28fd7be4a6186a042bc26159d4366ca",
        column="TEXT",
    ),
    "pg19": Dataset(
        dataset="emozilla/pg19",
        validation_split="validation",
        revision="c021754c8e01c5b1cc83a1f549c1f97fbbb756b8",
    ),
    "govreport": Dataset(
        dataset="ccdv/govreport-summarization",
        config="document",
        validation_split="validation",
        revision="4e21184e01ae8017e2c036e180fe5e541fef60a0",
        column="report",
    ),
    # The test split of Azerbayev's Proof-pile, in the copy of YaRN's authors: the original needs
    # code of its own to be read. Its tokens are Mistral's, its text is the original's.
    "proof-pile": Dataset(
        dataset="emozilla/proofpile-test-tokenized-mistral",
        revision="877431c3724d92b0edb85ea07e132c6a78386a8e",
    ),
    "wikipedia": Dataset(
        dataset="wikimedia/wikipedia",
        config="20231101.en",
        revision="b04c8d1ceb2f5cd4588862100d08de323dccfbaa",
    ),
}
"""The papers' corpora, each pinned to a revision that is known to exist."""
