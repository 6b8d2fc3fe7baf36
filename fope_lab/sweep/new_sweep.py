"""A sweep file to begin with: four embeddings trained on a text of the user's, with comments."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from fope_lab.config.problems import ConfigError, Problem, SweepError
from fope_lab.data.corpora.local import Files
from fope_lab.data.problems import DataError
from fope_lab.sweep.graph import Sweep
from fope_lab.sweep.load import parse_sweep

SUFFIX = ".yaml"
LENGTHS: tuple[int, ...] = (32, 64, 128, 256, 512)
"""The context lengths that are evaluated, as far as the text is long enough."""
TRAINED = 64
SMALL_TEXT = 50_000_000
"""The most bytes of text of which the held-out part is measured: a larger one is long enough."""
DEFAULT_CORPUS = "python-docs"
TEMPLATE = """\
# Which position embedding lets a model trained on {trained} tokens work on longer text?
#
#   fope-lab plan {file}      what a run will do, and what it costs
#   fope-lab run {file}       run it; the same command continues a run that was ended
#   fope-lab report {file}    show the results so far
#
# The model and its training are small: minutes on two CPU cores. Every value may be changed.
name: {name}
description: Four embeddings, trained on {trained} tokens and evaluated on up to {longest}.
seeds: [0]    # more seeds, such as [0, 1, 2], tell differences from chance
stages:
  pretrain:
    kind: pretrain
    model: {{num_layers: 2, num_heads: 2, head_dim: 32, intermediate_size: 128}}
    # model: {{scale: 60m}}    # `fope-lab scales` lists larger models
    embedding: rope    # the grid below sets it
    data: {{{data}, length: {trained}}}    # the tokens of a training sequence
    # A byte is a token. For larger tokens: tokenizer: {{train: bpe, vocabulary: 4096, corpus: …}}
    train: {{tokens: 1e6, batch_tokens: 2048, learning_rate: 3e-3}}
    # resources: {{gpus: 1}}
  perplexity:    # on the end of each text, which training does not read
    kind: perplexity
    from: pretrain
    corpus: {corpus}
    lengths: {lengths}
grid:    # axes multiply; `fope-lab embeddings` lists all embeddings and their options
  # With this base, half of the rotary pairs complete a cycle within {trained} tokens.
  pretrain.embedding: [nope, alibi, {{type: rope, base: 129}}, {{type: fope, base: 129}}]
report:
  claims: ["perplexity@{longest}: fope < rope"]    # judged if there are several seeds
"""


def write_new_sweep(path: Path, text: Sequence[str]) -> Sweep:
    """Write a sweep file for text files or patterns, which start from the current folder; without
    any, for the documentation of Python. Returns its sweep.

    Raises SweepError if `path` exists or can't be written, or if the text can't be used.
    """
    if path.suffix != SUFFIX:
        needs = f"a name that ends in {SUFFIX}, such as books{SUFFIX}"
        raise _wrong("NAME", f"found {str(path)!r}, needs {needs}")
    if path.exists():
        raise _wrong("NAME", f"{path} is already there; choose another name")
    if not path.parent.is_dir():
        raise _wrong("NAME", f"{path.parent} is not a folder")
    lengths, data, corpus = LENGTHS, f"corpus: {DEFAULT_CORPUS}", DEFAULT_CORPUS
    if text:
        lengths = _lengths(text)
        places = [_from_folder(place, path.parent) for place in _short(text)]
        names = json.dumps(places if len(places) > 1 else places[0], ensure_ascii=False)
        data, corpus = f"files: {names}", f"{{files: {names}}}"
    content = TEMPLATE.format(
        name=path.stem,
        file=path,
        data=data,
        corpus=corpus,
        trained=TRAINED,
        lengths=list(lengths),
        longest=lengths[-1],
    )
    sweep = parse_sweep(content, path)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        raise _wrong("NAME", f"{path} is already there; choose another name") from None
    except OSError as error:
        raise _wrong("NAME", f"{path} can't be written: {error.strerror}") from error
    return sweep


def _lengths(text: Sequence[str]) -> tuple[int, ...]:
    """The lengths, in bytes, that the held-out text is long enough for."""
    try:
        files = Files(files=tuple(text)).resolved(Path.cwd())
        if sum(map(os.path.getsize, files.local_files())) > SMALL_TEXT:
            return LENGTHS
        held_out = sum(len(part.encode()) for part in files.documents("validation"))
    except ConfigError as error:
        raise SweepError(Problem(("--text",), p.message) for p in error.problems) from error
    except DataError as error:
        raise _wrong("--text", str(error)) from error
    lengths = tuple(takewhile(lambda length: 2 * length < held_out, LENGTHS))
    if TRAINED not in lengths:
        raise _wrong(
            "--text",
            f"the text is too short: {held_out} bytes of it would be held out from training,"
            f" and more than {2 * TRAINED} are needed; give more text, in several paragraphs",
        )
    return lengths


def _short(text: Sequence[str]) -> Sequence[str]:
    """One pattern for files that a shell has made of one, such as books/*.txt."""
    first = Path(text[0])
    pattern = str(first.with_name(f"*{first.suffix}"))
    is_all = len(text) > 1 and sorted(glob.glob(pattern)) == sorted(text)
    return [pattern] if is_all and first.suffix else text


def _from_folder(place: str, folder: Path) -> str:
    place = os.path.expanduser(place)
    return place if os.path.isabs(place) else os.path.relpath(place, folder)


def _wrong(argument: str, message: str) -> SweepError:
    return SweepError(Problem((argument,), message))
