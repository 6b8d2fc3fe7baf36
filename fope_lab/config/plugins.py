"""The door for code from outside: modules whose classes register as ours do, by subclassing.

An installed package names its modules as entry points of the group `fope_lab.plugins`, as this lab
does with its papers. `plugins:` in a sweep file, `--plugins` of a command and `load_plugins` name
others: `./mine.py`, a folder with an `__init__.py`, or an importable module.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import itertools
import os
import pickle
import pkgutil
import sys
import tomllib
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, Generic, TypeVar

from fope_lab.config.problems import (
    ConfigError,
    FieldPath,
    NameTakenError,
    Problem,
    UserError,
    collecting,
    nearest_name,
)

T = TypeVar("T")
GROUP = "fope_lab.plugins"
"""The entry-point group in which a package names its modules."""
BASES = {
    "fope_lab.embeddings.spec": ("EMBEDDING_TYPES", "TRANSFORM_TYPES"),
    "fope_lab.data.corpora.registry": ("CORPUS_TYPES",),
    "fope_lab.data.tasks.base": ("TASK_TYPES",),
    "fope_lab.data.tokenizers.recipe": ("TRAINED_TOKENIZER_TYPES",),
    "fope_lab.analysis.base": ("ANALYSIS_TYPES",),
    "fope_lab.stages.base": ("STAGE_TYPES",),
}
"""All tables of named classes. Ours are in them before a plug-in is imported, so that it is the
plug-in that hears of a name that both have."""
INIT = "__init__.py"
PREFIX = "plugin_"
"""Stands before the name of a file, so that `tokenizers.py` hides no installed module."""


@dataclass(frozen=True)
class Plugin:
    """A plug-in that was imported: its module, and its file, or the `__init__.py` of its folder.
    `by_path`: only the file leads to the module; `installed`: an installed package names it."""

    module: str
    file: Path
    by_path: bool = False
    installed: bool = False

    @property
    def place(self) -> Path:
        """The file, or the folder, that holds the whole module."""
        return self.file.parent if self.file.name == INIT else self.file

    @property
    def name(self) -> str:
        """What users call it: `mine.py`, `mine` for a folder, or the module of a package."""
        return self.place.name if self.by_path else self.module


_loaded: dict[str, Plugin] = {}
_begun: set[str] = set()
"""Holds GROUP while the installed plug-ins are being loaded, and from then on."""


def load_plugins(
    names: Iterable[str | os.PathLike[str]], base: str | os.PathLike[str] = ".", at: FieldPath = ()
) -> None:
    """Import plug-ins: files (`./mine.py`), folders with an `__init__.py`, or modules by name.

    Relative paths start from the folder `base`; `at` is the path of the list in errors. A plug-in
    is imported once, by whatever name. Raises ConfigError with a problem for each that is not
    there, raises on import, or takes a name that is taken.
    """
    load_installed()
    problems: list[Problem] = []
    for index, name in enumerate(names):
        with collecting(problems, (index,)):
            _load(os.fspath(name), Path(base).absolute())
    if problems:
        raise ConfigError(problems, at)


def load_installed() -> None:
    """Import the modules that installed packages name in GROUP, after all modules of ours. Raises
    UserError for one that can't be used."""
    if GROUP in _begun:
        return
    _begun.add(GROUP)
    try:
        list(_tables_of_ours())
        for module, package in installed_plugins().items():
            try:
                _import(module, installed=True)
            except ConfigError as error:
                raise UserError(
                    f"the installed package {package} has a plug-in that can't be used: {error};"
                    f" mend or uninstall {package}"
                ) from error
    except BaseException:
        _begun.clear()
        raise


def installed_plugins() -> dict[str, str]:
    """The modules in GROUP with their packages; a checkout's by its pyproject.toml of now."""
    found = {
        point.value: point.dist.name if point.dist else "?"
        for point in importlib.metadata.entry_points(group=GROUP)
    }
    file = Path(__file__).parents[2] / "pyproject.toml"
    if file.is_file():
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        found = {module: name for module, name in found.items() if name != project["name"]}
        points = project.get("entry-points", {}).get(GROUP, {})
        found.update(dict.fromkeys(points.values(), project["name"]))
    return dict(sorted(found.items()))


def loaded_plugins() -> tuple[Plugin, ...]:
    return tuple(_loaded.values())


def plugin_of(module: str) -> Plugin | None:
    """The plug-in that a module is, or is inside of; None for any other module."""
    while module not in _loaded and "." in module:
        module = module.rpartition(".")[0]
    return _loaded.get(module)


@dataclass(frozen=True)
class WithPlugins(Generic[T]):
    """Carries a value to another process: unpickling imports the plug-ins before the value."""

    value: T

    def __reduce__(self) -> tuple[Any, ...]:
        plugins = tuple(plugin for plugin in loaded_plugins() if not plugin.installed)
        return _unpacked, (plugins, pickle.dumps(self.value))


def _unpacked(plugins: Sequence[Plugin], value: bytes) -> WithPlugins[Any]:
    load_installed()
    for plugin in plugins:
        if plugin.module not in _loaded:
            if plugin.by_path or _origin(plugin.module) is None:
                _import_file(plugin.module, plugin.file)
            else:
                _import(plugin.module)
    return WithPlugins(pickle.loads(value))


def _load(name: str, base: Path) -> None:
    files = {plugin.file for plugin in _loaded.values()}
    if not (name.endswith(".py") or name.startswith((".", "~")) or "/" in name):
        origin = _origin(name)
        if origin is None:
            names = {*_loaded, *(module.name for module in pkgutil.iter_modules())}
            alike = sorted(each for each in names if each[:1] == name[:1])  # the first is right
            here = (base / f"{name}.py").is_file()
            nearest = f"./{name}.py" if here else nearest_name(name, alike)
            raise ConfigError(Problem((), f"{name} is not installed", nearest=nearest))
        if origin not in files:
            _import(name)
        return
    file = (base / os.path.expanduser(name)).resolve()
    if (file / INIT).is_file():
        file /= INIT
    if file.is_dir():
        raise ConfigError(f"{name} is a folder without an {INIT}")
    if not file.is_file():
        known = [os.path.relpath(path, base) for path in sorted(file.parent.glob("*.py"))]
        near = nearest_name(os.path.normpath(name), known)
        raise ConfigError(Problem((), f"{name} is not there", nearest=near and f"./{near}"))
    if file in files:
        return
    if (module := _name_in_package(file)) is not None:
        _import(module)
    else:
        _import_file(_free_name(file), file)


def _origin(module: str) -> Path | None:
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).resolve()
    return None


def _name_in_package(file: Path) -> str | None:
    parts, folder = [] if file.name == INIT else [file.stem], file.parent
    while (folder / INIT).is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    packaged = len(parts) > 1 or file.name == INIT
    found = packaged and _origin(parts[0]) == folder / parts[0] / INIT
    return ".".join(parts) if found else None


def _free_name(file: Path) -> str:
    stem = file.parent.name if file.name == INIT else file.stem
    name = PREFIX + "".join(c if c.isalnum() else "_" for c in stem)
    more = (f"{name}_{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], more) if each not in sys.modules)


class _FromSource(SourceFileLoader):
    """Compiles the source each time: bytecode may be older than an edit within the same second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _import(name: str, *, installed: bool = False) -> None:
    with _registering(name):
        module = importlib.import_module(name)
        if module.__file__ is None:
            raise ImportError(f"it is a folder without an {INIT}")
    _loaded.setdefault(name, Plugin(name, Path(module.__file__).resolve(), installed=installed))


def _import_file(name: str, file: Path) -> None:
    plugin = Plugin(name, file, by_path=True)
    loader = _FromSource(name, str(file))
    inside = [str(file.parent)] if file.name == INIT else None
    spec = importlib.util.spec_from_file_location(
        name, file, loader=loader, submodule_search_locations=inside
    )
    assert spec is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        with _registering(plugin.name):
            loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _loaded[name] = plugin


@contextlib.contextmanager
def _registering(name: str) -> Iterator[None]:
    """Raise ConfigError for whatever an import raises; no class of the plug-in stays registered."""
    before = [(table, table.registered()) for table in _tables_of_ours()]
    try:
        yield
    except (Exception, SystemExit) as error:
        for table, types in before:
            table.restore(types)
        text = " ".join(str(getattr(error, "msg", None) or error).split())
        if not isinstance(error, NameTakenError):
            text = f"raises {type(error).__name__} on import{text and f': {text}'}"
        raise ConfigError(Problem((), f"{name}{_line_of(error)}: {text}")) from error


def _tables_of_ours() -> Iterator[Any]:
    for module, names in BASES.items():
        for name in names:
            table = getattr(importlib.import_module(module), name)
            table.discover()
            yield table


def _line_of(error: BaseException) -> str:
    """The line, outside of fope-lab and of Python's import, that an error comes from."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    own = (str(Path(__file__).parents[1]), "<frozen")
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not frame.filename.startswith(own)]
    return f", line {outside[0].lineno}" if outside else ""
