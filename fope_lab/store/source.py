"""The source code that a stage's numbers depend on, as digests that survive moving a file.

`source_of(modules)` follows the imports of the modules that do the work, inside the packages that
decide numbers and inside plug-ins. A module's digest is that of its syntax tree without what
changes no number: docstrings, annotations, imports, and the errors that it raises. So a module that
is moved, renamed or reformatted keeps its digest.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fope_lab.config.plugins import INIT, loaded_plugins, plugin_of

ROOT = Path(__file__).parents[2]
ROOMS = (
    "fope_lab.analysis",
    "fope_lab.data",
    "fope_lab.embeddings",
    "fope_lab.evaluation",
    "fope_lab.model",
    "fope_lab.papers",
    "fope_lab.stages",
    "trainers",
)
"""The packages of ours that decide numbers, as plug-ins do. The others plan, record and show."""
NOT_FOLLOWED = ("fope_lab.embeddings.presets", "fope_lab.embeddings.spec")
"""Modules that import every embedding to name it. A stage computes with those that it names."""
DIGITS = 20
"""How many hexadecimal digits of a SHA-256 are kept: 80 bits."""


CODE_SUFFIXES = (".py", ".j2", ".js")
"""The suffixes of the package's code, which includes templates."""


@dataclass(frozen=True)
class SourceFile:
    """One file of the source: the SHA-256 of its bytes, and a digest that ignores comments."""

    bytes: str
    code: str


def source_of(modules: Iterable[str]) -> dict[str, SourceFile]:
    """Return the files that these modules and their imports consist of, by path from the checkout;
    those of a plug-in by its module, as in `plugin_mine.py`, wherever it is."""
    files = _closure(modules)
    return {name: _source_file(files[name]) for name in sorted(files)}


def changed_files(recorded: Mapping[str, SourceFile]) -> list[str]:
    """Return the recorded files whose code is nowhere in today's checkout and plug-ins."""
    plugins = dict(_plugin_files())
    today = {name: plugins.get(name, ROOT / name) for name in recorded}
    suspects = [name for name in recorded if _bytes_digest(today[name]) != recorded[name].bytes]
    other = [name for name in suspects if _code_digest(today[name]) != recorded[name].code]
    if not other:
        return []
    rooms = (ROOT.joinpath(*room.split(".")).rglob("*.py") for room in ROOMS)
    codes = set(map(_code_digest, itertools.chain(*rooms, plugins.values())))
    return [name for name in other if recorded[name].code not in codes]


def package_digest() -> str:
    """Return the SHA-256 of the names and the contents of all files of the package and of plug-ins,
    for what is made anew whenever any of it has changed."""
    digests = [_folder_digest(Path(__file__).parents[1])]
    outside = (plugin.place for plugin in loaded_plugins() if not _is_ours(plugin.module))
    digests += sorted(map(_folder_digest, outside))
    return hashlib.sha256("".join(digests).encode()).hexdigest()


@functools.cache
def _folder_digest(place: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if path.suffix in CODE_SUFFIXES:
            digest.update(f"{path.relative_to(place.parent)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def digest_of_code(text: str) -> str:
    """Return the digest of a module's text without what changes no number."""
    tree = _Plain().visit(ast.parse(text))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:DIGITS]


class _Plain(ast.NodeTransformer):
    """Leaves out of a tree what changes no number."""

    def visit_Import(self, node: ast.AST) -> None:
        """Left out: a move of a module changes the imports of others."""

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        return ast.Raise()

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)


def _closure(modules: Iterable[str]) -> dict[str, Path]:
    """The files of modules and of what they import, except for type checking only."""
    found: dict[str, Path] = {}
    pending = list(modules)
    while pending:
        module = pending.pop()
        path = _path_of(module)
        if path is None or (name := _shown(module, path)) in found:
            continue
        found[name] = path
        package = module if path.name == INIT else module.rpartition(".")[0]
        imported = _imported_names(path, _stamp(path), package)
        carried = (m for m in imported if _is_ours(m) or plugin_of(m) is not None)
        pending += (m for m in carried if m not in NOT_FOLLOWED)
    return found


def _stamp(path: Path) -> tuple[int, int]:
    """What changes with a file: a process does thousands of stages, and reads a file once."""
    about = path.stat()
    return about.st_mtime_ns, about.st_size


@functools.cache
def _imported_names(path: Path, stamp: tuple[int, int], package: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_imported(ast.parse(path.read_text(encoding="utf-8")), package)))


def _is_ours(module: str) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in ROOMS)


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            relative = "." * child.level + (child.module or "")
            module = importlib.util.resolve_name(relative, package)
            yield module
            yield from (f"{module}.{alias.name}" for alias in child.names)
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _imported(child, package)


def _source_file(path: Path) -> SourceFile:
    return _read_file(path, _stamp(path))


@functools.cache
def _read_file(path: Path, stamp: tuple[int, int]) -> SourceFile:
    text = path.read_bytes()
    return SourceFile(hashlib.sha256(text).hexdigest()[:DIGITS], digest_of_code(text.decode()))


def _code_digest(path: Path) -> str | None:
    try:
        return _source_file(path).code
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None  # it is gone, or somebody is writing it


def _bytes_digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:DIGITS]
    except OSError:
        return None


def _plugin_files() -> Iterator[tuple[str, Path]]:
    """All files of the plug-ins from outside, each under its name in a record."""
    for plugin in loaded_plugins():
        if _is_ours(plugin.module):
            continue
        if plugin.file.name != INIT:
            yield _shown(plugin.module, plugin.file), plugin.file
            continue
        for path in plugin.place.rglob("*.py"):
            inner = path.relative_to(plugin.place).as_posix()
            yield f"{plugin.module.replace('.', '/')}/{inner}", path


def _shown(module: str, path: Path) -> str:
    """The name of a module's file in a record."""
    if _is_ours(module) or plugin_of(module) is None:
        return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
    name = module.replace(".", "/")
    return f"{name}/{INIT}" if path.name == INIT else f"{name}.py"


@functools.cache
def _path_of(module: str) -> Path | None:
    """The file of a module, or None for a name that is no module."""
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if loaded:
        return Path(loaded)
    plugin = plugin_of(module)
    if plugin is None or _is_ours(module):
        inside = ROOT.joinpath(*module.split("."))
    elif plugin.file.name == INIT:
        inside = plugin.file.parent.joinpath(*module.removeprefix(plugin.module).split("."))
    else:
        return None
    for path in (inside.with_suffix(".py"), inside / INIT):
        if path.is_file():
            return path
    return None
