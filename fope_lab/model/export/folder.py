"""Exports a checkpoint as a Hugging Face folder, which transformers loads without fope-lab."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.config.plugins import plugin_of
from fope_lab.data.tokenizers.tokenizer import is_built_in, load_tokenizer
from fope_lab.embeddings.base import Embedding
from fope_lab.model.checkpoint import (
    CONFIG,
    DECODER,
    EXPORTED,
    OWN_TOKENIZER,
    find_checkpoint,
    load_model,
    plugins_of,
    read_config,
)
from fope_lab.model.checkpoint_files import WEIGHTS, CheckpointConfig, CheckpointError
from fope_lab.model.decoder import Decoder
from fope_lab.model.export.card import Origin, model_card
from fope_lab.model.export.own_classes import (
    gpt2_description,
    gpt2_weights,
    llama_description,
    llama_weights,
)
from fope_lab.model.export.plugin_source import is_carried, is_module, plugin_source
from fope_lab.model.export.tokenizer import write_tokenizer
from fope_lab.model.hub import hub_name

if TYPE_CHECKING:
    from torch import Tensor


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
    classes: dict[str, list[str]] = {MODEL: []}
    for part in parts:
        classes.setdefault(type(part).__module__, []).append(type(part).__name__)
    modules = _with_imports(classes)
    texts = {module: _flat(text) for module, text in modules.items() if module != DISCOVERY}
    texts[DISCOVERY] = _naming(texts)
    return {f"{file_name(module)}.py": text for module, text in texts.items()}


def _with_imports(start: Mapping[str, Collection[str]]) -> dict[str, str]:
    """The sources of modules and of all modules of ours and of plug-ins that they import, by
    module; `start` has the classes that are needed of each."""
    found: dict[str, str] = {}
    pending = list(start)
    while pending:
        module = pending.pop()
        if module not in found:
            found[module] = _source(module, start.get(module))
            if module != DISCOVERY:  # it is replaced by _naming
                pending += [imported for _, imported, _ in _imports(found[module])]
    return found


def _source(module: str, classes: Collection[str] | None) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None, module  # it was imported by a module that works
    assert spec.origin is not None, module
    if plugin_of(module) is not None:
        return plugin_source(module, Path(spec.origin), classes)
    return Path(spec.origin).read_text(encoding="utf-8")


def _imports(source: str) -> Iterator[tuple[int, str, str | None]]:
    """Yield the line and the module of each import of ours, and the name of a whole module."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if not is_carried(node.module):
            continue
        [first, *_] = node.names
        whole = f"{node.module}.{first.name}"
        if is_module(whole):  # of a package
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


CARD = "README.md"
"""The model card, under the name that the Hugging Face hub shows."""
NO_ORIGIN = Origin()


def export(
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    to: str = "fope-lab",
    origin: Origin = NO_ORIGIN,
) -> Path:
    """Write the model of a checkpoint (see `load_model`) to `directory`, a new or empty folder.

    `AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True)` then gives the same
    logits bit for bit, and needs only torch and transformers. With `to="llama"` or `to="gpt2"` the
    folder holds transformers' own LlamaForCausalLM or GPT2LMHeadModel, which need no remote code;
    their logits differ by rounding.
    The folder also holds the tokenizer, which AutoTokenizer loads, and a model card (card.py) with
    the `origin` of the model. Returns the absolute path of the folder. Raises
    CheckpointError if the folder is not empty or transformers' class cannot express the model, and
    DataError if the tokenizer cannot be loaded.
    """
    target = Path(directory).expanduser().absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{target} exists already and is not an empty folder")
    model = load_model(path)
    config = read_config(path if hub_name(path) else find_checkpoint(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    # Written beside the target and renamed when complete, so that nobody sees half a model.
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _write(partial, model, config, to)
        remote_code = (partial / MODEL_FILE).exists()
        card = model_card(target.name, config, origin, remote_code=remote_code)
        (partial / CARD).write_text(card, encoding="utf-8")
        partial.chmod(0o755)
        partial.replace(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return target


def _write(folder: Path, model: Decoder, config: CheckpointConfig, to: str) -> None:
    from safetensors.torch import save_file

    tokenizer = load_tokenizer(config.tokenizer)
    description, weights = FORMATS[to](folder, model, config)
    # Transformers does not read a file that does not name the framework that wrote it.
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    _write_json(folder / CONFIG, description)
    ends = {"eos_token_id": tokenizer.eos_id, "pad_token_id": tokenizer.pad_id}
    _write_json(folder / "generation_config.json", {"use_cache": True, **ends})
    write_tokenizer(folder, config.tokenizer, tokenizer)


Written = tuple[dict[str, Any], dict[str, "Tensor"]]
"""The config.json and the tensors of a format, whose other files are written already."""


def _write_ours(folder: Path, model: Decoder, config: CheckpointConfig) -> Written:
    for name, text in model_sources(model.embedding).items():
        (folder / name).write_text(text, encoding="utf-8")
    weights = {f"{DECODER}{name}": tensor for name, tensor in model.untied_state().items()}
    return _description(model, config), weights


FORMATS: Mapping[str, Callable[[Path, Decoder, CheckpointConfig], Written]] = {
    "fope-lab": _write_ours,
    "llama": lambda folder, model, config: (
        llama_description(model, config.context_length),
        llama_weights(model),
    ),
    "gpt2": lambda folder, model, config: (gpt2_description(model), gpt2_weights(model)),
}
"""The writers by the value of `to`."""


def _description(model: Decoder, config: CheckpointConfig) -> dict[str, Any]:
    """The config.json that `FopeLabConfig` reads."""
    module = file_name(MODEL)
    return {
        "model_type": EXPORTED,
        "architectures": ["FopeLabForCausalLM"],
        "auto_map": {
            "AutoConfig": f"{module}.FopeLabConfig",
            "AutoModelForCausalLM": f"{module}.FopeLabForCausalLM",
        },
        "dtype": str(model.embed_tokens.weight.dtype).removeprefix("torch."),
        "model": dataclasses.asdict(model.config),
        "embedding": model.embedding.canonical(),
        **plugins_of(model.embedding),
        "train_length": model.train_length,
        "context_length": config.context_length,
        "tokenizer": config.tokenizer if is_built_in(config.tokenizer) else OWN_TOKENIZER,
        "tie_word_embeddings": model.config.tie_embeddings,
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
