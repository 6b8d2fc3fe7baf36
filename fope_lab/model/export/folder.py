"""Exports a checkpoint as a Hugging Face folder, which transformers loads without fope-lab."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.config.problems import unknown_name
from fope_lab.data.tokenizers.tokenizer import is_built_in, load_tokenizer
from fope_lab.model.checkpoint import (
    CONFIG,
    DECODER,
    EXPORTED,
    OWN_TOKENIZER,
    load_model,
    plugins_of,
    read_config,
)
from fope_lab.model.checkpoint_files import WEIGHTS, CheckpointConfig, CheckpointError
from fope_lab.model.decoder import Decoder
from fope_lab.model.export.card import Origin, model_card
from fope_lab.model.export.sources import MODEL_FILE, model_sources
from fope_lab.model.export.tokenizer import as_huggingface
from fope_lab.model.families.base import FAMILIES, family_config
from fope_lab.model.families.tensors import written_tensors
from fope_lab.model.lora import merge_adapter

if TYPE_CHECKING:
    from torch import Tensor

OURS = "fope-lab"
"""The value of `to` for our own class, which any model has."""


def export(
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    to: str = OURS,
    origin: Origin | None = None,
) -> Path:
    """Write the model of a checkpoint (see `load_model`) to `directory`, a new or empty folder.

    `AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True)` then gives the same
    logits bit for bit, and needs only torch and transformers. With the name of a family
    (`families/`), such as `to="llama"`, the folder holds transformers' own class, which needs no
    remote code; its logits differ by rounding. The folder also holds the tokenizer, which
    AutoTokenizer loads, and a model card (card.py) with the `origin` of the model. Returns the
    folder's absolute path. Raises CheckpointError if the folder is not empty or transformers' class
    cannot express the model, and DataError if the tokenizer cannot be loaded.
    """
    if to not in (names := (OURS, *FAMILIES.all())):
        raise CheckpointError(str(unknown_name((), "family", to, names)))
    target = Path(directory).expanduser().absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{target} exists already and is not an empty folder")
    model, config = load_model(path), read_config(path)
    merge_adapter(model)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Written beside the target and renamed when complete, so that nobody sees half a model.
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _write(partial, model, config, to)
        remote_code = (partial / MODEL_FILE).exists()
        card = model_card(target.name, config, origin or Origin(), remote_code=remote_code)
        (partial / "README.md").write_text(card, encoding="utf-8")
        partial.chmod(0o755)
        partial.replace(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return target


def _write(folder: Path, model: Decoder, config: CheckpointConfig, to: str) -> None:
    from safetensors.torch import save_file

    tokenizer = load_tokenizer(config.tokenizer)
    ends = {"eos_token_id": tokenizer.eos_id, "pad_token_id": tokenizer.pad_id}
    if to == OURS:
        description, weights = _write_ours(folder, model, config), _our_tensors(model)
    else:
        family = FAMILIES.all()[to]()
        dtype = str(model.embed_tokens.weight.dtype).removeprefix("torch.")
        # The ids of the class by default may be past the end of the vocabulary.
        own = {"dtype": dtype, "bos_token_id": None, **ends}
        description = family_config(family, config) | own
        weights = written_tensors(model, family)
    # Transformers does not read a file that does not name the framework that wrote it.
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    _write_json(folder / CONFIG, description)
    _write_json(folder / "generation_config.json", {"use_cache": True, **ends})
    as_huggingface(config.tokenizer, tokenizer).save_pretrained(folder)


def _our_tensors(model: Decoder) -> dict[str, Tensor]:
    return {f"{DECODER}{name}": tensor for name, tensor in model.untied_state().items()}


def _write_ours(folder: Path, model: Decoder, config: CheckpointConfig) -> dict[str, Any]:
    """The files of code, and the config.json, which is returned."""
    for name, text in model_sources(model.embedding).items():
        (folder / name).write_text(text, encoding="utf-8")
    module = MODEL_FILE.removesuffix(".py")
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
