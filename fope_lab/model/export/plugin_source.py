"""What an export takes of a plug-in: the classes of the embedding, and what they use.

A file of one's own may hold evaluations and analyses too, whose imports an exported model must do
without. The text is written from the syntax tree, so comments are left out.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Collection, Iterator
from pathlib import Path

from fope_lab.config.plugins import INIT, plugin_of
from fope_lab.model.checkpoint_files import CheckpointError

OURS = "fope_lab"


def is_carried(module: str) -> bool:
    """Whether an export takes its own copy of a module: ours, and those of plug-ins."""
    return module.partition(".")[0] == OURS or plugin_of(module) is not None


def is_module(name: str) -> bool:
    """Whether a dotted name is a module, rather than something in one."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def plugin_source(module: str, file: Path, names: Collection[str] | None) -> str:
    """The text of a plug-in's module with what `names` need; all of it without names.

    Each import is a line of its own, absolute, of one name, and from the module that defines it.
    Raises CheckpointError for `import package.module` of what an export must copy.
    """
    package = module if file.name == INIT else module.rpartition(".")[0]
    tree = _PlainImports(file, package).visit(ast.parse(file.read_text(encoding="utf-8")))
    if names is not None:
        tree.body = list(_needed(tree.body, set(names)))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _PlainImports(ast.NodeTransformer):
    def __init__(self, file: Path, package: str) -> None:
        self._file, self._package = file, package

    def visit_If(self, node: ast.If) -> ast.AST | None:
        """Left out, if it is for type checking only."""
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        for alias in node.names:
            if is_carried(alias.name):
                raise CheckpointError(
                    f"{self._file}, line {node.lineno}: an export can't copy what"
                    f" `import {alias.name}` names; write `from … import …`"
                )
        return [ast.Import([alias]) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        relative = "." * node.level + (node.module or "")
        module = importlib.util.resolve_name(relative, self._package)
        return [ast.ImportFrom(_home(module, alias.name), [alias], 0) for alias in node.names]


def _home(module: str, name: str) -> str:
    """The module that defines a name which may be imported from a package of ours, too."""
    if not is_carried(module) or is_module(f"{module}.{name}"):
        return module
    home = getattr(getattr(importlib.import_module(module), name, None), "__module__", module)
    return home if is_carried(home) else module


def _needed(body: list[ast.stmt], names: set[str]) -> Iterator[ast.stmt]:
    """The statements that bind the names, and the names that these use, in their order."""
    kept: set[int] = set()
    while True:
        more = {i for i, each in enumerate(body) if i not in kept and _bound(each) & names}
        if not more:
            break
        kept |= more
        for i in more:
            names |= {n.id for n in ast.walk(body[i]) if isinstance(n, ast.Name)}
    for i, each in enumerate(body):
        if i in kept or (isinstance(each, ast.ImportFrom) and each.module == "__future__"):
            yield each


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement defines or changes."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= {inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name)}
    return found
