"""The source files of an exported model: our modules, and what it needs of plug-ins.

Our modules are copied as they are, but for their imports, which become relative. Of a plug-in an
export takes the classes of the embedding and what they use, without comments: its file may hold
evaluations and analyses too, whose imports an exported model must do without.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from fope_lab.config.plugins import INIT, plugin_of
from fope_lab.embeddings.base import Embedding
from fope_lab.model.checkpoint_files import CheckpointError

PACKAGE = "fope_lab"
MODEL = "fope_lab.model.export.modeling"
DISCOVERY = "fope_lab.config.discovery"
INSTEAD = {"fope_lab.embeddings.spec": "fope_lab.embeddings.composition"}


def file_name(module: str) -> str:
    """The name of a module's file in an export: `fope_lab.model.decoder` → `model_decoder`."""
    return module.removeprefix(f"{PACKAGE}.").replace(".", "_")


MODEL_FILE = f"{file_name(MODEL)}.py"
"""The file of an exported folder that the loader of remote code starts from."""


def model_sources(embedding: Embedding) -> dict[str, str]:
    """The text of each source file of a model with this embedding, by the name of the file."""
    classes: dict[str, list[str]] = {MODEL: []}
    for part in embedding.parts():
        classes.setdefault(type(part).__module__, []).append(type(part).__name__)
    texts: dict[str, str] = {}
    pending = list(classes)
    while pending:
        module = pending.pop()
        if module not in texts and module != DISCOVERY:
            source = _source(module, classes.get(module))
            pending += [imported for _, imported, _ in _imports(source)]
            texts[module] = _flat(source)
    texts[DISCOVERY] = _naming(map(file_name, texts))
    return {f"{file_name(module)}.py": text for module, text in texts.items()}


def _source(module: str, classes: Collection[str] | None) -> str:
    spec = importlib.util.find_spec(module)
    file = Path(str(spec and spec.origin))
    if plugin_of(module) is not None:
        return _plugin_source(module, file, classes)
    return file.read_text(encoding="utf-8")


def _imports(source: str) -> Iterator[tuple[int, str, str | None]]:
    """Yield the line and the module of each import of ours, and the name of a whole module."""
    for node in _import_statements(source):
        if node.module is None or not _is_carried(node.module):
            continue
        [first, *_] = node.names
        whole = f"{node.module}.{first.name}"
        if _is_module(whole):  # of a package
            assert len(node.names) == 1, whole
            yield node.lineno, INSTEAD.get(whole, whole), first.asname or first.name
        else:
            yield node.lineno, INSTEAD.get(node.module, node.module), None


@functools.cache  # who exports many models parses each module once
def _import_statements(source: str) -> list[ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]


def _flat(source: str) -> str:
    """The source of a module with relative imports in place of ours, line for line."""
    lines = source.splitlines(keepends=True)
    for number, module, bound in _imports(source):
        line = lines[number - 1]
        indent = line[: len(line) - len(line.lstrip())]
        name = file_name(module)
        if bound is None:
            _, _, rest = line.partition(" import ")
            lines[number - 1] = f"{indent}from .{name} import {rest}"
        else:
            lines[number - 1] = f"{indent}from . import {name} as {bound}\n"
    return "".join(lines)


def _naming(names: Iterable[str]) -> str:
    imports = "\n".join(f"    from .{name} import __name__ as _" for name in sorted(names))
    return (
        '"""Every module of this model by name, so that the loader copies all of them."""\n\n\n'
        f"def discover(package: str, skip: tuple[str, ...] = ()) -> None:\n{imports}\n"
    )


def _is_carried(module: str) -> bool:
    """Whether an export takes its own copy of a module: ours, and those of plug-ins."""
    return module.partition(".")[0] == PACKAGE or plugin_of(module) is not None


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def _plugin_source(module: str, file: Path, names: Collection[str] | None) -> str:
    """The text of a plug-in's module with what `names` need; all of it without names.

    Raises CheckpointError for `import package.module` of what an export must copy.
    """
    package = module if file.name == INIT else module.rpartition(".")[0]
    tree = _PlainImports(file, package).visit(ast.parse(file.read_text(encoding="utf-8")))
    if names is not None:
        tree.body = list(_needed(tree.body, set(names)))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _PlainImports(ast.NodeTransformer):
    """Make each import a line of its own, absolute, from the module that defines the name."""

    def __init__(self, file: Path, package: str) -> None:
        self._file, self._package = file, package

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        for alias in node.names:
            if _is_carried(alias.name):
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
    if not _is_carried(module) or _is_module(f"{module}.{name}"):
        return module
    home = getattr(getattr(importlib.import_module(module), name, None), "__module__", module)
    return home if _is_carried(home) else module


def _needed(body: list[ast.stmt], names: set[str]) -> Iterator[ast.stmt]:
    """The statements that bind the names, and the names that these use, in their order."""
    kept: set[int] = set()
    while more := {i for i, each in enumerate(body) if i not in kept and _bound(each) & names}:
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
