"""The source code that a stage's numbers depend on, as digests that survive moving a file.

`source_of(modules)` follows the imports of the modules that do the work, inside the packages that
decide numbers. A module's digest is that of its syntax tree without what changes no number:
docstrings, annotations, imports, and the errors that it raises. So a module that is moved, renamed
or reformatted keeps its digest.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = (
    "fope_lab.analysis",
    "fope_lab.data",
    "fope_lab.embeddings",
    "fope_lab.evaluation",
    "fope_lab.model",
    "fope_lab.stages",
    "trainers",
)
"""The packages that decide numbers. The others plan, record and show them."""
NOT_FOLLOWED = (
    "fope_lab.embeddings.presets",
    "fope_lab.embeddings.spec",
)
"""Modules that import every embedding to name it. A stage computes with those that it names."""
DIGITS = 20
"""How many hexadecimal digits of a SHA-256 are kept: 80 bits."""


@dataclass(frozen=True)
class SourceFile:
    """One file of the source: the SHA-256 of its bytes, and the digest of what it computes."""

    bytes: str
    code: str


def source_of(modules: Iterable[str]) -> dict[str, SourceFile]:
    """The files that these modules and their imports consist of, by path from the checkout."""
    return {_shown(path): _source_file(path) for path in sorted(_closure(modules))}


def changed_files(recorded: Mapping[str, SourceFile]) -> list[str]:
    """Of recorded files, those whose code is nowhere in today's checkout, by their paths."""
    suspects = [path for path in recorded if _bytes_digest(ROOT / path) != recorded[path].bytes]
    other = [path for path in suspects if _code_digest(ROOT / path) != recorded[path].code]
    today = set(_codes_of_checkout()) if other else set()
    return [path for path in other if recorded[path].code not in today]


@functools.cache
def digest_of_code(text: str) -> str:
    """The digest of a module's text without what changes no number."""
    tree = _Plain().visit(ast.parse(text))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:DIGITS]


class _Plain(ast.NodeTransformer):
    """Leaves out of a tree what changes no number."""

    def visit_Import(self, node: ast.Import) -> None:
        """Left out: a move of a module changes the imports of others."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Left out, as an import is."""

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


def _closure(modules: Iterable[str]) -> set[Path]:
    found: set[Path] = set()
    pending = [path for name in modules if (path := _path_of(name)) is not None]
    while pending:
        path = pending.pop()
        if path not in found:
            found.add(path)
            pending += _imports(path)
    return found


def _imports(path: Path) -> tuple[Path, ...]:
    """The files of ROOMS that a file imports, except for type checking only."""
    paths = map(_path_of, _imported_names(path.read_text(encoding="utf-8")))
    return tuple(path for path in paths if path is not None)


@functools.cache
def _imported_names(text: str) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(_imported(ast.parse(text))) if _decides(name))


def _decides(module: str) -> bool:
    inside = any(module == room or module.startswith(f"{room}.") for room in ROOMS)
    return inside and module not in NOT_FOLLOWED


def _imported(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _imported(child)


def _source_file(path: Path) -> SourceFile:
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


def _codes_of_checkout() -> Iterator[str]:
    """The digest of every file of ROOMS."""
    for room in ROOMS:
        for path in sorted(ROOT.joinpath(*room.split(".")).rglob("*.py")):
            if (code := _code_digest(path)) is not None:
                yield code


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


@functools.cache
def _path_of(module: str) -> Path | None:
    """The file of a module, or None for a name that is no module."""
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if loaded:
        return Path(loaded)
    inside = ROOT.joinpath(*module.split("."))
    for path in (inside.with_suffix(".py"), inside / "__init__.py"):
        if path.is_file():
            return path
    return None
