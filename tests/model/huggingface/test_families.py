"""Each family: every field is read or refused, and a model comes back as it went."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.parity import LEFT_OUT, MODELS, SIZES, random_model, random_weights
from fope_lab.embeddings import Shape
from fope_lab.embeddings.rotary import Rotary
from fope_lab.model import CheckpointError, Decoder, load_model, read_config, save_model
from fope_lab.model.checkpoint_files import ConfigSource
from fope_lab.model.config import parameters
from fope_lab.model.export.folder import export
from fope_lab.model.families.base import FAMILIES, family_config, read_family_config

TOLERANCE = 1e-5
FIRST = {MODELS[name]["model_type"]: name for name in reversed(MODELS)}
"""The first model of each family."""
TOKENIZER = (
    b'{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": '
    b'null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null, '
    b'"model": {"type": "WordLevel", "vocab": {"<eos>": 0, "a": 1}, "unk_token": "<eos>"}}'
)


def tokens(length: int, rows: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, SIZES["vocab_size"], (rows, length), generator=generator)


def logits(model: Any, ids: torch.Tensor, **given: Any) -> torch.Tensor:
    with torch.no_grad():
        found = model(ids, **given).logits
    assert isinstance(found, torch.Tensor)
    return found


def test_there_is_a_model_of_every_family() -> None:
    assert FIRST.keys() == FAMILIES.all().keys()


@pytest.mark.parametrize("name", MODELS)
def test_a_cache_changes_nothing(tmp_path: Path, name: str) -> None:
    """Beyond every window and original length, a few tokens at a time."""
    from fope_lab.model.cache import KeyValueCache

    theirs = random_model(name)
    theirs.save_pretrained(tmp_path)
    ours, ids = load_model(tmp_path), tokens(60)
    if not ours.embedding.keys_cacheable:
        pytest.skip("a cache rotates earlier keys anew")
    cache = KeyValueCache(len(ours.layers), windows=[plan.window for plan in ours.plans])
    parts = [logits(ours, part, cache=cache) for part in ids.split([1, 20, 19, 5, 1, 14], dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), logits(theirs, ids), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", MODELS)
def test_padding_changes_nothing(tmp_path: Path, name: str) -> None:
    theirs = random_model(name)
    theirs.save_pretrained(tmp_path)
    ours, ids = load_model(tmp_path), tokens(48)
    mask = torch.ones_like(ids)
    mask[0, :7] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    expected = logits(theirs, ids, attention_mask=mask, position_ids=positions)
    found = logits(ours, ids, positions=positions, documents=mask)
    seen = mask.bool()
    torch.testing.assert_close(found[seen], expected[seen], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", MODELS)
def test_there_and_back(tmp_path: Path, name: str) -> None:
    """Untrained, every tensor is the same, byte for byte; trained, transformers has our logits."""
    family = MODELS[name]["model_type"]
    random_model(name).save_pretrained(tmp_path / "one")
    (tmp_path / "one" / "tokenizer.json").write_bytes(TOKENIZER)
    export(tmp_path / "one", tmp_path / "two", to=family)
    one, two = (load_file(tmp_path / folder / "model.safetensors") for folder in ("one", "two"))
    names = {"embed_out.weight": "lm_head.weight"}
    assert {names.get(each, each) for each in one} == {names.get(each, each) for each in two}
    for each, tensor in two.items():
        assert torch.equal(one.get(each, one.get(names.get(each, ""))), tensor), each
    ours = load_model(tmp_path / "two")
    trained = torch.optim.SGD(ours.parameters(), lr=0.1)
    for _ in range(3):
        ids = tokens(40)
        loss = ours.train()(ids[:, :-1], labels=ids[:, 1:]).loss
        (loss / ids.numel()).backward()
        trained.step()
        trained.zero_grad()
    config = read_config(tmp_path / "two")
    save_model(
        tmp_path / "three",
        ours.eval(),
        context_length=config.context_length,
        tokenizer=str(tmp_path / "one"),
    )
    export(tmp_path / "three", tmp_path / "four", to=family)
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path / "four", dtype=torch.float32, attn_implementation="eager"
    )
    expected = logits(ours, tokens(100))
    assert not torch.equal(expected, logits(load_model(tmp_path / "one"), tokens(100)))
    torch.testing.assert_close(logits(theirs, tokens(100)), expected, rtol=0, atol=TOLERANCE)


METHODS: dict[str, dict[str, Any]] = {
    "pi": {"factor": 4},
    "ntk": {"factor": 4},
    "dynamic-ntk": {},
    "yarn": {"factor": 4},
    "llama3": {"factor": 4},
    "longrope": {"factor": 4},
}
"""How a model is extended, with the options beside its base and what of a head rotates."""
ROTATIONS = ("llama", "gemma3_text", "gpt_neox", "smollm3", "phi3")
"""The families that say a rotation in a way of their own. The others say it as Llama does."""
WHERE = {"gemma3_text": "full", "olmo3": "full", "smollm3": "rotating"}


@pytest.mark.parametrize(
    ("family", "method"),
    [
        (family, method)
        for family in FIRST
        for method in METHODS
        if family in ROTATIONS or (family != "gpt2" and method == "yarn")
    ],
)
def test_it_is_extended_and_written_back(tmp_path: Path, family: str, method: str) -> None:
    """Without training, in the layers that it is meant for; transformers has the same logits."""
    random_model(FIRST[family]).save_pretrained(tmp_path / "one")
    (tmp_path / "one" / "tokenizer.json").write_bytes(TOKENIZER)
    config = read_config(tmp_path / "one")
    where = {"where": WHERE[family]} if family in WHERE else {}
    own = next(
        plan.embedding
        for plan in config.embedding.layers(config.model.num_layers)
        if plan.embedding.rotates and (plan.window is None or not where)
    )
    assert isinstance(own, Rotary)
    options = METHODS[method] | {"base": own.base, "fraction": own.fraction, **where}
    if method == "longrope":
        pairs = own.width(Shape(**config.model.head_sizes, train_length=64)) // 2
        options |= {"short": [1.0] * pairs, "long": [1.0 + pair for pair in range(pairs)]}
    ours = load_model(tmp_path / "one", embedding={"type": method, **options})
    before, expected = logits(load_model(tmp_path / "one"), tokens(150)), logits(ours, tokens(150))
    assert (before - expected).abs().max() > 1e-3
    save_model(tmp_path / "two", ours, context_length=512, tokenizer=str(tmp_path / "one"))
    if family == "phi3" and method not in ("longrope", "ntk"):  # which is another base
        with pytest.raises(CheckpointError, match="Phi3ForCausalLM cannot express this model"):
            export(tmp_path / "two", tmp_path / "three", to=family)
        return
    export(tmp_path / "two", tmp_path / "three", to=family)
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path / "three", dtype=torch.float32, attn_implementation="eager"
    )
    torch.testing.assert_close(logits(theirs, tokens(150)), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    random_model(name).config.save_pretrained(tmp_path)
    config = read_config(tmp_path)
    family = FAMILIES.all()[MODELS[name]["model_type"]]()
    written = json.loads(json.dumps(family_config(family, config)))
    source = ConfigSource("config.json", tmp_path, str(tmp_path))
    assert read_family_config(written, source) == config


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_counted(tmp_path: Path, name: str) -> None:
    random_model(name).config.save_pretrained(tmp_path)
    config = read_config(tmp_path)
    with torch.device("meta"):
        model = Decoder(config.model, config.embedding, train_length=config.train_length)
    own = sum(p.numel() for n, p in model.named_parameters() if not n.startswith("position_"))
    assert parameters(config.model).total == own
    assert len(model.position_embeddings) >= 1


NO_SUCH_MODEL = (
    *(ValueError, TypeError, KeyError, AssertionError, RuntimeError, IndexError, AttributeError),
    StrictDataclassError,
)
"""What transformers raises for a configuration that it can't make a model of."""
OTHER: dict[str, Any] = {
    "hidden_size": 128,
    "n_embd": 128,
    "num_attention_heads": 8,
    "n_head": 8,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "n_layer": 2,
    "n_inner": 100,
    "no_rope_layers": [0, 1, 1, 0, 1],
    "no_rope_layer_interval": 3,
    "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
    "sliding_window": 8,
    "max_window_layers": 2,
    "hidden_act": "relu",
    "hidden_activation": "relu",
    "activation_function": "relu",
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 2.0,
    "query_pre_attn_scalar": 7,
    "summary_type": "last",
    "summary_activation": "tanh",
    "original_max_position_embeddings": 64,
    "n_positions": 2000,
    "max_position_embeddings": 96,
    "tokenizer_class": "LlamaTokenizer",
    "id2label": {"0": "a"},
    "label2id": {"a": 0},
}
"""Another value of a field; or else its opposite, its double, or half of it."""
BY_KIND = {
    "full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}


def changed(family: str, field: str, value: Any) -> Any:
    if field == "rope_parameters" and family in ("gemma3_text", "olmo3"):
        return BY_KIND
    if field in OTHER:
        return OTHER[field]
    if field == "layer_types":
        sizes = SIZES | MODELS[FIRST[family]]
        return ["sliding_attention", *["full_attention"] * (sizes["num_hidden_layers"] - 1)]
    if value is None:
        return 1 if field.endswith("_token_id") else True
    if isinstance(value, bool):
        return not value
    return value / 2 if isinstance(value, float) and value else (value or 1) * 2


def refusal(description: dict[str, Any]) -> str:
    """What is said of a configuration that is not read."""
    try:
        read_family_config(description, ConfigSource("config.json", Path(), "byte"))
    except CheckpointError as error:
        return str(error)
    return ""


def fields_of(family: str) -> list[str]:
    """The fields of the class of a family's configuration in transformers."""
    kind = type(AutoConfig.for_model(family))
    return [each.name for each in dataclasses.fields(kind)]


@pytest.mark.parametrize(
    ("family", "field"), [(family, field) for family in FIRST for field in fields_of(family)]
)
def test_each_field_is_read_or_refused(tmp_path: Path, family: str, field: str) -> None:
    """A model with another value of one field has transformers' logits, or is refused by name."""
    settings = {**SIZES, **MODELS[FIRST[family]]}
    given = {name: value for name, value in settings.items() if value != LEFT_OUT}
    given.pop("model_type")
    names = type(AutoConfig.for_model(family)).attribute_map
    given = {name: value for name, value in given.items() if names.get(name) != field}
    before = AutoConfig.for_model(family, **given).to_dict().get(field)
    given[field] = value = changed(family, field, before)
    try:
        config = AutoConfig.for_model(family, attn_implementation="eager", **given)
        description = json.loads(json.dumps(config.to_dict())) | {field: value}
        if refused := refusal(description):
            assert field in refused or field == "rope_parameters"
            return
        theirs = random_weights(config)
        expected = logits(theirs, tokens(60), return_dict=True)
    except NO_SUCH_MODEL as error:
        pytest.skip(f"transformers has no such model: {type(error).__name__}")
    theirs.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(description))
    ours = load_model(tmp_path)
    torch.testing.assert_close(logits(ours, tokens(60)), expected, rtol=0, atol=TOLERANCE)
