"""The sources of an exported model: our own files, side by side, with relative imports.

Hugging Face's loader of remote code copies only the files that are imported in the form
`from .name import …`, starting from the model's file. So a module `fope_lab.model.decoder` becomes
`model_decoder.py`, and its imports of our modules become relative. Two modules are replaced:
`spec`, which checks what users write and needs pydantic, by `composition`, and `discovery`, which
lists the folder of a package, by a module that names all modules.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fope_lab.embeddings.base import Embedding

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
    parts = (embedding, *getattr(embedding, "transforms", ()))
    modules = _with_imports([MODEL, *dict.fromkeys(type(part).__module__ for part in parts)])
    texts = {module: _flat(text) for module, text in modules.items() if module != DISCOVERY}
    texts[DISCOVERY] = _naming(texts)
    return {f"{file_name(module)}.py": text for module, text in texts.items()}


def _with_imports(start: Iterable[str]) -> dict[str, str]:
    """The sources of these modules and of all our modules that they import, by module."""
    found: dict[str, str] = {}
    pending = list(start)
    while pending:
        module = pending.pop()
        if module not in found:
            found[module] = _source(module)
            pending += [imported for _, imported, _ in _imports(found[module])]
    return found


def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None, module  # it was imported by a module that works
    assert spec.origin is not None, module
    return Path(spec.origin).read_text(encoding="utf-8")


def _imports(source: str) -> Iterator[tuple[int, str, str | None]]:
    """Yield the line and the module of each import of ours, and the name of a whole module."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if node.module.partition(".")[0] != PACKAGE:
            continue
        [first, *_] = node.names
        whole = f"{node.module}.{first.name}"
        if node.module.count(".") == 1:  # a package, of which a module is imported
            assert len(node.names) == 1, whole
            yield node.lineno, INSTEAD.get(whole, whole), first.asname or first.name
        else:
            yield node.lineno, INSTEAD.get(node.module, node.module), None


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


def _naming(texts: Mapping[str, str]) -> str:
    """A `discovery` that imports every module by name, so that the loader copies all of them."""
    names = sorted(map(file_name, texts))
    imports = "\n".join(f"    from .{name} import __name__ as _" for name in names)
    return (
        '"""Every module of this model by name, so that the loader copies all of them."""\n\n\n'
        f"def discover(package: str, skip: tuple[str, ...] = ()) -> None:\n{imports}\n"
    )
