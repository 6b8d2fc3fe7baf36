"""What the tensors of a family's files hold of ours, and the way back.

A map has the names of modules as the family has them, without its prefix and with `*` for the
number of a layer, and what each holds: the name of one of our modules, or several of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fope_lab.model.checkpoint_files import (
    CheckpointConfig,
    CheckpointError,
    read_weights,
    weight_files,
)
from fope_lab.model.config import ModelConfig

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.model.decoder import Decoder
    from fope_lab.model.families.base import Family

_LAYER = re.compile(r"\.(\d+)\.")


@dataclass(frozen=True)
class Same:
    """One of our tensors as it is."""

    ours: tuple[str, ...]

    def split(self, tensor: Tensor, config: ModelConfig) -> list[Tensor]:
        """Our tensors, in the order of their names."""
        return [tensor]

    def join(self, parts: list[Tensor], config: ModelConfig) -> Tensor:
        return parts[0]


@dataclass(frozen=True)
class Fused(Same):
    """Several of our tensors, one after the other."""

    def split(self, tensor: Tensor, config: ModelConfig) -> list[Tensor]:
        rows = [_rows(name, config) for name in self.ours]
        if sum(rows) != len(tensor):
            raise ValueError(f"{len(tensor)} rows, but {' + '.join(map(str, rows))} are needed")
        return [part.clone() for part in tensor.split(rows)]

    def join(self, parts: list[Tensor], config: ModelConfig) -> Tensor:
        import torch

        return torch.cat(parts)


@dataclass(frozen=True)
class ByHead(Same):
    """Queries, keys and values of as many heads each, a head of each after the other (GPT-NeoX)."""

    def split(self, tensor: Tensor, config: ModelConfig) -> list[Tensor]:
        sizes = config.num_heads, len(self.ours), config.head_dim
        if math.prod(sizes) != len(tensor):
            raise ValueError(f"{len(tensor)} rows, but {' × '.join(map(str, sizes))} are needed")
        heads = tensor.unflatten(0, sizes)
        return [part.flatten(0, 1).contiguous() for part in heads.unbind(1)]

    def join(self, parts: list[Tensor], config: ModelConfig) -> Tensor:
        import torch

        heads = [part.unflatten(0, (config.num_heads, config.head_dim)) for part in parts]
        return torch.stack(heads, dim=1).flatten(0, 2)


@dataclass(frozen=True)
class Transposed(Same):
    """What `of` says, with matrices of inputs by outputs (GPT-2)."""

    of: Same

    def split(self, tensor: Tensor, config: ModelConfig) -> list[Tensor]:
        return [part.contiguous() for part in self.of.split(_transposed(tensor), config)]

    def join(self, parts: list[Tensor], config: ModelConfig) -> Tensor:
        return _transposed(self.of.join(parts, config)).contiguous()


TensorMap = Mapping[str, Same]


def transposed(of: Same) -> Transposed:
    return Transposed(of.ours, of)


def same(*names: str) -> dict[str, Same]:
    """Modules that have our names."""
    return {name: Same((name,)) for name in names}


def renamed(names: Mapping[str, str]) -> dict[str, Same]:
    """Modules by their name in the family and ours."""
    return {theirs: Same((ours,)) for theirs, ours in names.items()}


LLAMA = same(
    "embed_tokens",
    "layers.*.input_layernorm",
    *(f"layers.*.self_attn.{name}_proj" for name in "qkvo"),
    "layers.*.post_attention_layernorm",
    *(f"layers.*.mlp.{name}_proj" for name in ("gate", "up", "down")),
    "norm",
    "lm_head",
)
"""The tensors of Llama, and of all that has its block."""
QK_NORM = same("layers.*.self_attn.q_norm", "layers.*.self_attn.k_norm")
HEAD_QK_NORM = renamed(
    {f"layers.*.self_attn.{name}_norm": f"layers.*.self_attn.{name}_norm.norm" for name in "qk"}
)


HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"


def read_tensors(directory: Path, family: Family, config: CheckpointConfig) -> dict[str, Tensor]:
    """The tensors of a family's folder under the names of `Decoder.untied_state`.

    They have the dtype of the files. After `load_model` has widened them, logits equal those of
    transformers with dtype=float32. Raises CheckpointError for weights that are quantised,
    duplicate or contradict the configuration.
    """
    import torch

    weights: dict[str, Tensor] = {}
    for path in weight_files(directory):
        for name, tensor in read_weights(path).items():
            if name.endswith(family.dropped):
                continue
            if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
                raise CheckpointError(
                    f"{path}: {name} is {tensor.dtype}: quantised weights are not supported"
                )
            short = name.removeprefix(family.prefix)
            try:
                parts = list(to_ours(short, tensor, family.tensors, config.model))
            except ValueError as error:
                wrong = f"{path}: {name} does not fit the config.json: {error}"
                raise CheckpointError(wrong) from None
            for own, part in parts:
                if own in weights:
                    raise CheckpointError(
                        f"{path}: {name} occurs twice, with and without {family.prefix}"
                    )
                weights[own] = part
    if config.model.tie_embeddings and HEAD in weights:
        head = weights.pop(HEAD)
        embedding = weights.setdefault(EMBEDDING, head)  # either of the two names may be stored
        if not torch.equal(head.to(torch.float32), embedding.to(torch.float32)):
            raise CheckpointError(
                f"{directory}: tie_word_embeddings is true, but {HEAD} is not the input embedding"
            )
    return weights


def written_tensors(model: Decoder, family: Family) -> dict[str, Tensor]:
    """A decoder's tensors under the names of a family's files."""
    found = to_theirs(model.untied_state(), family.tensors, model.config)
    heads = tuple(theirs for theirs, held in family.tensors.items() if held.ours == ("lm_head",))
    return {n if n.startswith(heads) else f"{family.prefix}{n}": t for n, t in found.items()}


def to_ours(
    name: str, tensor: Tensor, tensors: TensorMap, config: ModelConfig
) -> Iterator[tuple[str, Tensor]]:
    """Our tensors in one of a family's, by name; one that the map lacks keeps its name."""
    layer = _LAYER.search(name)
    pattern = _LAYER.sub(".*.", name, count=1)
    module, _, kind = pattern.rpartition(".")
    held, ending = tensors.get(pattern), ""
    if held is None:
        held, ending = tensors.get(module), f".{kind}"
    if held is None:
        yield name, tensor
        return
    for ours, part in zip(held.ours, held.split(tensor, config), strict=True):
        yield ours.replace("*", layer[1] if layer else "*") + ending, part


def to_theirs(
    state: Mapping[str, Tensor], tensors: TensorMap, config: ModelConfig
) -> dict[str, Tensor]:
    """A family's tensors by name, from ours. Raises ValueError for what it has no place for."""
    found: dict[str, Tensor] = {}
    left = dict(state)
    for theirs, held in tensors.items():
        for number in range(config.num_layers) if "*" in theirs else ("",):
            for ending in ("", ".weight", ".bias"):
                names = [ours.replace("*", str(number)) + ending for ours in held.ours]
                if all(name in left for name in names):
                    parts = [left.pop(name) for name in names]
                    found[theirs.replace("*", str(number)) + ending] = held.join(parts, config)
    if left:
        raise ValueError(f"no place for {next(iter(left))}")
    return found


def _rows(name: str, config: ModelConfig) -> int:
    """The outputs of one of our modules."""
    heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}
    heads["v_proj"] = config.num_kv_heads
    module = name.rpartition(".")[2]
    return heads[module] * config.head_dim if module in heads else config.intermediate_size


def _transposed(tensor: Tensor) -> Tensor:
    return tensor.T if tensor.dim() == 2 else tensor
