"""YAML text to plain values, remembering the line of every field.

YAML 1.2's reading of words (`6e-4` and `10e9` are numbers, as is `200_000`; `no` is a word), merge
keys (`<<: *other`), and an integer written with an exponent is an integer. What PyYAML lets pass
silently is a problem: a key given twice, a tag, a number too large to compute with.
"""

from __future__ import annotations

import dataclasses
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from fope_lab.config.problems import FieldPath, Problem, SweepError, did_you_mean

MAX_BYTES = 1_000_000
MAX_VALUES = 100_000
"""A short file may have a value in every second byte, and aliases of aliases expand without end; no
sweep needs as many values as this."""
MAX_DEPTH = 50
MAX_PROBLEMS = 1_000
"""With more problems than this, a file is not read to its end."""
INTEGERS = range(-(2**63), 2**63)
_TAG = "tag:yaml.org,2002:"
_LEADING_ZERO = re.compile("[-+]?0[0-9_]*[0-9]")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's core schema instead of 1.1's."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own class attribute

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node. Raises _TooMuchError before too much of them is in memory."""
        self._nodes += 1
        if self._nodes > MAX_VALUES:
            raise _TooMuchError(
                f"holds over {MAX_VALUES:,} keys and values; no sweep needs so many"
            )
        if self._depth > MAX_DEPTH:
            raise _TooMuchError("is nested too deeply", self.line + 1)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _TooMuchError(Exception):
    """A file is too large or too deep to be read; the arguments are why, and in which line."""


_SCALARS = {
    name: re.compile(f"(?:{pattern})\\Z")
    for name, pattern in {
        "null": r"~|null|Null|NULL|",
        "bool": r"true|True|TRUE|false|False|FALSE",
        "int": r"[-+]?[0-9]+(_[0-9]+)*",
        "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    }.items()
}
for _name, _pattern in _SCALARS.items():
    _Loader.add_implicit_resolver(_TAG + _name, _pattern, None)


class Document:
    """A parsed YAML file: `.value`, and `.line(path)` for any field path in it. If `text` is given,
    it is parsed instead of the file. `problems` are keys given twice, of which the first counts.
    Raises SweepError if the file is not YAML, or holds what a sweep file can't."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self._lines: dict[FieldPath, int] = {}
        self.problems: list[Problem] = []
        self._wrong: list[Problem] = []
        self._values = 0
        node = self._compose(self._read() if text is None else text)
        self.value = None if node is None else self._construct(node, ())
        if self._wrong:
            raise SweepError([*self.problems, *self._wrong])

    def line(self, path: FieldPath) -> int | None:
        """The line of a field, or of the nearest field around it that the file has."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path)

    def locate(self, problem: Problem) -> Problem:
        return dataclasses.replace(problem, file=self.path, line=self.line(problem.path))

    def _read(self) -> str:
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            names = sorted(path.name for path in self.path.parent.glob("*.y*ml"))
            near = did_you_mean(self.path.name, names)
            raise self._refused(f"is not there{near}") from None
        except IsADirectoryError:
            raise self._refused("is a folder; give a sweep file") from None
        except (OSError, ValueError) as error:  # ValueError: a name no file can have
            reason = getattr(error, "strerror", None) or error
            raise self._refused(f"can't be read: {reason}") from None
        if len(data) > MAX_BYTES:
            size = self.path.stat().st_size / 1e6
            limit = f"a sweep file has at most {MAX_BYTES / 1e6:g} MB"
            raise self._refused(f"is too large: found {size:.1f} MB; {limit}")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            message = f"is not UTF-8 text: found the byte 0x{data[error.start]:02x}"
            raise self._refused(message, line) from None

    def _compose(self, text: str) -> yaml.Node | None:
        try:
            return yaml.compose(text, Loader=_Loader)
        except _TooMuchError as error:
            raise self._refused(*error.args) from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            message = f"is not YAML: the character #x{ord(text[error.position]):04x} is not allowed"
            raise self._refused(message, line) from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            said = ", ".join(filter(None, [error.context, error.problem]))
            said = said.replace(
                "found character '\\t' that cannot start any token",
                "found a tab where only spaces may indent",
            )
            raise self._refused(f"is not YAML: {said}", mark.line + 1 if mark else None) from None

    def _refused(self, message: str, line: int | None = None) -> SweepError:
        return SweepError(Problem((), message, file=self.path, line=line))

    def _problem(self, node: yaml.Node, path: FieldPath, message: str) -> Problem:
        return Problem(path, message, file=self.path, line=node.start_mark.line + 1)

    def _refuse(self, node: yaml.Node, path: FieldPath, message: str) -> None:
        self._wrong.append(self._problem(node, path, message))
        if len(self._wrong) >= MAX_PROBLEMS:
            raise SweepError(self._wrong)

    def _construct(self, node: yaml.Node, path: FieldPath) -> Any:
        self._lines.setdefault(path, node.start_mark.line + 1)
        self._values += 1
        if self._values > MAX_VALUES:
            raise self._refused(f"expands, with its aliases, to over {MAX_VALUES:,} values")
        if len(path) > MAX_DEPTH:
            message = "is nested too deeply, or an alias that holds itself"
            raise SweepError(self._problem(node, path[:3], message))
        if node.tag.removeprefix(_TAG) not in ("map", "seq", "str", *_SCALARS):
            tag = node.tag.replace(_TAG, "!!")
            self._refuse(node, path, f"found the tag {tag}; tags are not read")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._construct(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        given: dict[str, tuple[yaml.Node, int]] = {}
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, path, "found a key that is a list or a mapping, not a word")
                continue
            key = self._text(key_node, path)
            if key in given:
                message = f"the key {key!r} is given twice (first in line {given[key][1]})"
                self.problems.append(self._problem(key_node, (*path, key), message))
            else:
                given[key] = value_node, line
        if "<<" in given:
            merged = given.pop("<<")[0]
            several = merged.value if isinstance(merged, yaml.SequenceNode) else [merged]
            for one in reversed(several):  # the first wins
                if isinstance(one, yaml.MappingNode):
                    result |= self._construct(one, path)
                else:
                    self._refuse(merged, (*path, "<<"), "merges what is no mapping")
        for key, (value_node, line) in given.items():
            self._lines[(*path, key)] = line
            result[key] = self._construct(value_node, (*path, key))
        return result

    def _scalar(self, node: yaml.Node, path: FieldPath) -> Any:
        text = self._text(node, path)
        kind = node.tag.removeprefix(_TAG)
        if kind in _SCALARS and not _SCALARS[kind].match(text):
            self._refuse(node, path, f"found {text!r}, tagged as {kind}")
            return None
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind == "str":
            return text
        try:
            return _number(text, kind)
        except ValueError as error:
            self._refuse(node, path, str(error))
            return 0

    def _text(self, node: yaml.Node, path: FieldPath) -> str:
        if wrong := _UNPRINTABLE.search(node.value):
            message = f"found the character #x{ord(wrong[0]):04x}, which can't be printed"
            self._refuse(node, path, message)
            return ""
        return str(node.value)


def _number(text: str, kind: str) -> int | float:
    """Raises ValueError, also for 010, which is eight to PyYAML and ten to others."""
    if _LEADING_ZERO.match(text):
        meant, octal = text.lstrip("-+0") or "0", re.fullmatch("[-+]?0[0-7]+", text)
        older = f"which is {int(text, 8)} in YAML's older form" if octal else "with a zero in front"
        sign = "-" if text.startswith("-") else ""
        raise ValueError(
            f"found {text[:30]}, {older[:60]}; write {sign}{meant[:30]}, or between quotes if it is"
            " text"
        )
    lower = text.lower()
    if kind == "float" and lower.lstrip("+-") in (".inf", ".nan"):
        return float(lower.replace(".", ""))
    value = float(text)
    too_large = ValueError(f"found {text[:30]}, a number too large to compute with")
    if math.isinf(value):
        raise too_large
    if kind == "float" and not ("e" in lower and value.is_integer()):
        return value
    if abs(value) <= INTEGERS.stop:  # or it may have millions of digits
        exact = int(Decimal(text.replace("_", "")))
        if exact in INTEGERS:
            return exact
    if kind == "int":
        raise too_large
    return value
