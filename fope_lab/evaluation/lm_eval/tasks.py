"""Tasks of lm-evaluation-harness as their YAML files describe them: metrics, version and data.

The harness's own index parses its 14,000 files and imports `datasets`, which takes ten seconds and
more. A plan needs a handful of tasks: their names are found with a regular expression, and only
their own files are parsed, as the harness does it (`include`, groups, tags; of one name, the file
that comes first). Nothing of the harness is imported.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib.util
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fope_lab.config.problems import ConfigError, Problem, shown
from fope_lab.data.corpora.files import file_sha256

PACKAGE = "lm_eval"
DEFAULT_METRICS = {
    "loglikelihood": ("perplexity", "acc"),
    "loglikelihood_rolling": ("word_perplexity", "byte_perplexity", "bits_per_byte"),
    "multiple_choice": ("acc", "acc_norm"),
    "generate_until": ("exact_match",),
}
"""What the harness measures where a task lists no metric, by the task's output type."""
LOWER_IS_BETTER = {
    "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "brier_score", "ter",
}  # fmt: skip
FRACTIONS = {"acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match"}
"""Metrics between 0 and 1 whatever the task; others depend on the task's own functions."""
FILE_BUILDERS = {"json", "csv", "text", "parquet", "arrow", "pandas"}
"""Values of `dataset_path` with which `datasets` reads the files of `data_files`."""
DEFAULT_ANSWER_TOKENS = 256
ANSWER_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""The names under which a task limits its answers; the first one given counts."""

_NAMES = re.compile(
    r"""^["']?(task|group|class|include)["']? *:[ \t]*(.*?)[ \t]*(?:#.*)?$""", re.MULTILINE
)
_TAG = re.compile(r"""^["']?tag["']? *:[ \t]*(.*(?:\n[ \t]*- .*)*)""", re.MULTILINE)


class Function(str):
    """What a task file writes after `!function`: MODULE.NAME."""

    __slots__ = ()


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads task files without importing the functions that they name."""


_Loader.add_constructor("!function", lambda loader, node: Function(loader.construct_scalar(node)))


class TaskMetric(NamedTuple):
    """A number that a task gives, through one of its filters."""

    metric: str
    filter: str
    higher_is_better: bool

    @property
    def key(self) -> str:
        """Its name in the harness's results."""
        return f"{self.metric},{self.filter}"


@dataclass(frozen=True)
class HarnessTask:
    """A task: its YAML file, with what that includes and what its group changes in `config`.

    `files` are all local files that decide its numbers, by the names under which they are in the
    stage's key; empty for the harness's own tasks, which have a version.
    """

    name: str
    path: Path
    config: Mapping[str, Any]
    overrides: Mapping[str, Any]
    files: Mapping[str, Path]
    sources: tuple[Path, ...]
    """Its file and those that it includes."""

    @functools.cached_property
    def metrics(self) -> list[TaskMetric]:
        """Every metric through every filter, the first one first."""
        kind = self.config.get("output_type", "generate_until")
        listed = self.config.get("metric_list")
        if listed is None:
            listed = [{"metric": name} for name in DEFAULT_METRICS.get(kind, ())]
        filters = [one["name"] for one in self.config.get("filter_list") or ()] or ["none"]
        found = []
        for filter_name, entry in itertools.product(filters, listed):
            name = str(entry["metric"])
            if isinstance(entry["metric"], Function):
                name = name.rpartition(".")[2]
            better = entry.get("higher_is_better", name not in LOWER_IS_BETTER)
            found.append(TaskMetric(name, filter_name, bool(better)))
        return found

    @property
    def answer_tokens(self) -> int:
        """The most tokens of an answer; 0 if the model writes none."""
        if self.config.get("output_type", "generate_until") != "generate_until":
            return 0
        given = self.config.get("generation_kwargs") or {}
        sizes = (given[name] for name in ANSWER_TOKENS if given.get(name) is not None)
        return int(next(sizes, DEFAULT_ANSWER_TOKENS))

    def unusable(self) -> str | None:
        """Why the task can't be part of a stage; None if it can."""
        config = self.config
        if "class" in config:
            return "is a Python class, which says only when it runs what it measures"
        if config.get("doc_to_image") or config.get("doc_to_audio"):
            return "shows the model images or sounds"
        if config.get("unsafe_code"):
            return "runs code that the model writes"
        if (config.get("generation_kwargs") or {}).get("do_sample"):
            return "samples its answers, and stages decode greedily"
        if any(isinstance(value, Function) for value in self.overrides.values()):
            return "is changed by a Python function of its group"
        missing = ", ".join(self._missing_packages())
        hint = "pip install 'fope-lab[lm-eval]' installs LongBench's"
        return f"needs {missing}, which is not installed here ({hint})" if missing else None

    def _missing_packages(self) -> list[str]:
        """What its functions import and is not installed, without running them."""
        modules = {name.rpartition(".")[0] for name in _functions(self.config)}
        folders = dict.fromkeys(source.parent for source in self.sources)
        files = [folder / f"{module}.py" for module in modules for folder in folders]
        imported = {name for file in files if file.is_file() for name in _imports(file)}
        own = {path.stem for folder in folders for path in folder.iterdir()}
        return sorted(name for name in imported - own if importlib.util.find_spec(name) is None)

    def identity(self) -> dict[str, Any]:
        """What the stage's key has of the task: its version and its data, or its files' content."""
        settings = self.config.get("dataset_kwargs") or {}
        content = {name: file_sha256(path) for name, path in self.files.items()}
        own = {"files": content} if content else {
            "data": self.config.get("dataset_path"), "name": self.config.get("dataset_name"),
            "revision": settings.get("revision"),
        }  # fmt: skip
        changed = {"changed": dict(self.overrides)} if self.overrides else {}
        return {"version": _version(self.config), **own, **changed}


@dataclass(frozen=True)
class HarnessGroup:
    """Tasks under one name, with the metrics that are averaged over them."""

    name: str
    config: Mapping[str, Any]
    members: tuple[HarnessTask | HarnessGroup, ...]

    @functools.cached_property
    def tasks(self) -> list[HarnessTask]:
        return list(all_tasks(self.members))

    @functools.cached_property
    def metrics(self) -> list[TaskMetric]:
        found = []
        for entry in _listed(self.config.get("aggregate_metric_list")):
            name, filters = entry["metric"], entry.get("filter_list")
            own = [one for task in self.tasks for one in task.metrics if one.metric == name]
            better = all(one.higher_is_better for one in own)
            if filters is None:
                filters = sorted({one.filter for one in own})
            for filter_name in _listed(filters):
                found.append(TaskMetric(name, filter_name, better))
        return found

    def identity(self) -> dict[str, Any]:
        return {
            "version": _version(self.config),
            "averages": self.config.get("aggregate_metric_list"),
            "tasks": {one.name: one.identity() for one in self.members},
        }


Item = HarnessTask | HarnessGroup


def _functions(value: Any) -> Iterator[str]:
    if isinstance(value, Function):
        yield value
    elif isinstance(value, Mapping | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _functions(one)


@functools.cache
def _imports(file: Path) -> frozenset[str]:
    """The packages that a module imports whenever it is imported itself."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return frozenset()  # whoever runs the task gets the error
    for node in list(body):
        if isinstance(node, ast.Try) and all(
            isinstance(h.body[-1], ast.Raise) for h in node.handlers
        ):
            body += node.body
    modules = [one.name for node in body if isinstance(node, ast.Import) for one in node.names]
    modules += [
        str(node.module) for node in body if isinstance(node, ast.ImportFrom) and not node.level
    ]
    return frozenset(module.partition(".")[0] for module in modules)


def all_tasks(items: Iterable[Item]) -> Iterator[HarnessTask]:
    for item in items:
        yield from item.tasks if isinstance(item, HarnessGroup) else [item]


def all_groups(items: Iterable[Item]) -> Iterator[HarnessGroup]:
    for item in items:
        if isinstance(item, HarnessGroup):
            yield item
            yield from all_groups(item.members)


def missing_harness() -> str | None:
    """The error message if lm-evaluation-harness is not installed, which names the extra."""
    message = "needs lm_eval, which is not installed: pip install 'fope-lab[lm-eval]'"
    return None if _folder_of_package() else f"a stage of kind lm-eval {message}"


def _folder_of_package() -> Path | None:
    spec = importlib.util.find_spec(PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "tasks"


class _Names(NamedTuple):
    """The files of tasks and groups by name, and the tasks of each tag."""

    files: dict[str, str]
    tags: dict[str, set[str]]


class TaskFinder:
    """Finds tasks, groups and tags by name, in a folder of one's own and in the harness."""

    def __init__(self, include_path: Path | None) -> None:
        self._own = include_path
        folder = _folder_of_package()
        assert folder is not None, "a caller asks missing_harness first"
        harness = _names_of_harness(folder)
        if include_path is None:
            self._names = harness
        else:
            own = _names_below(include_path)
            tags = {tag: names | own.tags.get(tag, set()) for tag, names in harness.tags.items()}
            self._names = _Names({**harness.files, **own.files}, {**own.tags, **tags})

    def find(self, name: str) -> list[Item]:
        """The task or group of a name, or the tasks of a tag. Raises ConfigError if there is none,
        or if a file in the folder of one's own is wrong."""
        return self._find(name, {})

    def _find(self, name: str, overrides: Mapping[str, Any]) -> list[Item]:
        files, tags = self._names
        if name in files:
            return [self._read(name, Path(files[name]), overrides)]
        if name in tags:
            return [self._read(one, Path(files[one]), overrides) for one in sorted(tags[name])]
        # nearest_name looks at the first hundred names only.
        near = difflib.get_close_matches(name, [*files, *tags], n=1)
        where = "lm-evaluation-harness" + (f" or {self._own}" if self._own else "")
        needs = f"a task, group or tag of {where}"
        raise ConfigError(
            Problem((), f"unknown task {shown(name)}", needs, nearest=near[0] if near else None)
        )

    def _read(self, name: str, path: Path, overrides: Mapping[str, Any]) -> Item:
        read, sources = _merged(path)
        if "group" in read and "class" not in read:
            return self._group(name, read, overrides)
        config = {**read, **overrides}
        own = self._own is not None and path.is_relative_to(self._own)
        files = self._files(path, config, sources) if own else {}
        changed = {key: value for key, value in overrides.items() if key != "task"}
        return HarnessTask(name, path, config, changed, files, tuple(sources))

    def _group(
        self, name: str, config: Mapping[str, Any], overrides: Mapping[str, Any]
    ) -> HarnessGroup:
        fields = {"group", "group_alias", "task", "aggregate_metric_list", "metadata", "tag"}
        common = {key: value for key, value in config.items() if key not in fields}
        common |= overrides
        members: list[Item] = []
        for member in _listed(config.get("task")):
            entry = {"task": member} if isinstance(member, str) else dict(member)
            named = entry.get("group", entry.get("task"))
            known = named in self._names.files or named in self._names.tags
            if "group" in entry and not known:
                members.append(self._group(f"{name}::{named}", entry, common))
            else:
                own = {key: value for key, value in entry.items() if key not in ("task", "group")}
                members += self._find(str(named), common | own)
        return HarnessGroup(name, config, tuple(members))

    def _files(
        self, path: Path, config: Mapping[str, Any], sources: Iterable[Path]
    ) -> dict[str, Path]:
        """The files of a task of one's own: what describes it, its functions and its data."""
        assert self._own is not None
        code = sorted(self._own.rglob("*.py"))
        found = {one.name: one for one in (*sources, *code) if "__pycache__" not in one.parts}
        splits = _splits(with_local_data(path, config)).values()
        data = enumerate(file for files in splits for file in files)
        return found | {f"data.{number}": one for number, one in data}


def with_local_data(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with absolute paths of the local files with the questions. Relative ones
    are looked up beside the task's file `path`, then in the current folder. Raises ConfigError if
    one is in neither."""
    settings = config.get("dataset_kwargs") or {}
    if config.get("dataset_path") not in FILE_BUILDERS or "data_files" not in settings:
        return dict(config)
    found = {
        split: [str(_existing(path.parent, file)) for file in files]
        for split, files in _splits(config).items()
    }
    return {**config, "dataset_kwargs": {**settings, "data_files": found}}


def _splits(config: Mapping[str, Any]) -> dict[str, list[Path]]:
    """The data files of each split, of a task that reads local files."""
    given = (config.get("dataset_kwargs") or {}).get("data_files") or {}
    if config.get("dataset_path") not in FILE_BUILDERS:
        return {}
    by_split = given if isinstance(given, Mapping) else {"train": given}
    return {split: [Path(file) for file in _listed(files)] for split, files in by_split.items()}


def _listed(given: Any) -> list[Any]:
    """What a file gives once or in a list."""
    return list(given or ()) if isinstance(given, list | tuple | None) else [given]


def _existing(folder: Path, file: Path) -> Path:
    tried = [Path(os.path.abspath(place / file.expanduser())) for place in (folder, Path.cwd())]
    for path in tried:
        if path.is_file():
            return path
    names = " nor ".join(dict.fromkeys(map(str, tried)))
    raise ConfigError(Problem((), f"found no file {names}, from which a task reads its questions"))


def _version(config: Mapping[str, Any]) -> Any:
    metadata = config.get("metadata")
    return metadata.get("version") if isinstance(metadata, Mapping) else None


def _merged(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """What a task file says together with the files that it includes, and all these files. Raises
    ConfigError if one can't be read."""
    try:
        config = yaml.load(path.read_bytes(), Loader=_Loader)
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(Problem((), f"{path} can't be read: {error}")) from error
    if not isinstance(config, dict):
        raise ConfigError(Problem((), f"{path} holds no fields of a task"))
    merged: dict[str, Any] = {}
    files = [path]
    for name in _listed(config.pop("include", None)):
        other, theirs = _merged(path.parent / name)
        merged |= {key: value for key, value in other.items() if key != "task_list"}
        files += theirs
    return merged | config, files


def _names_below(folder: Path) -> _Names:
    """The names in all task files below a folder, nearly all found without parsing."""
    files: dict[str, str] = {}
    tags: dict[str, set[str]] = {}
    for path in sorted(_yaml_files(folder)):
        text = _text(path)
        fields = {name: value.strip("\"'") for name, value in _NAMES.findall(text)}
        kind = "group" if "group" in fields and "class" not in fields else "task"
        name = fields.get(kind) or (_merged_name(path, kind) if "include" in fields else None)
        if name and name not in files:
            files[name] = path
            for tag in _tags(path, text, fields) if kind == "task" else ():
                tags.setdefault(tag, set()).add(name)
    return _Names(files, tags)


_names_of_harness = functools.cache(_names_below)  # whose files don't change


def _yaml_files(folder: Path) -> Iterator[str]:
    for directory, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if one not in ("__pycache__", ".ipynb_checkpoints")]
        yield from (os.path.join(directory, name) for name in names if name.endswith(".yaml"))


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _merged_name(path: str, kind: str) -> str | None:
    """The name that a file takes over from one that it includes."""
    try:
        name = _merged(Path(path))[0].get(kind)
    except ConfigError:
        return None  # as the harness does with files that it can't read
    return name if isinstance(name, str) else None


def _tags(path: str, text: str, fields: Mapping[str, str]) -> list[str]:
    """The tags of a task, its own or those that it takes over."""
    if match := _TAG.search(text):
        return _read_tags(match[1])
    if not fields.get("include"):
        return []
    included = os.path.join(os.path.dirname(path), fields["include"].strip("\"'"))
    return _tags_of_included(os.path.normpath(included))


@functools.cache  # thousands of tasks have the same tags
def _read_tags(text: str) -> list[str]:
    try:
        given = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError:
        return []  # whoever asks for the task gets the error of the whole file
    return _listed(given)


@functools.lru_cache(maxsize=4096)
def _tags_of_included(path: str) -> list[str]:
    try:
        text = _text(path)
    except OSError:
        return []
    return _tags(path, text, dict(_NAMES.findall(text)))
