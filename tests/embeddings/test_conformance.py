"""What every embedding must do: one suite over the presets, the mechanisms and the transforms.

An embedding or a transform that is added is checked with no change here; `LearnedSlopes` below is
an added embedding.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import pytest
import torch
from example_embeddings import NEEDS, with_needs
from hugging_face import llama_config
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding

from fope_lab.config.annotations import Interval
from fope_lab.embeddings import (
    EMBEDDINGS,
    EmbeddingError,
    build_embedding,
    embedding_names,
    resolve_embedding,
)
from fope_lab.embeddings.base import EMBEDDING_TYPES, Embedding, Shape, Tensors
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES, hf_transforms
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.embeddings.presets import PRESETS
from fope_lab.embeddings.rotary import Rotary
from fope_lab.embeddings.spec import embedding_options, named
from fope_lab.model import Decoder, ModelConfig, block_attention, exact
from fope_lab.model.cache import LayerCache
from fope_lab.model.scores import attend
from fope_lab.model.seen import Documents, Seen


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnedSlopes(Embedding, name="learned-slopes", source="here"):
    """Bias −slope·|i − j| with learned slopes, one set for each layer."""

    biases: ClassVar[bool] = True

    start: Annotated[float, Interval(gt=0)] = 0.5

    @property
    def per_layer(self) -> bool:
        return True

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        return {"slopes": (shape.num_heads, 1, 1)}

    def tensors(self, shape: Shape) -> Tensors:
        return Tensors(
            learned={"slopes": torch.full((shape.num_heads, 1, 1), self.start, device="cpu")}
        )

    def bias(
        self,
        shape: Shape,
        tensors: Mapping[str, Tensor],
        query_positions: Tensor,
        key_positions: Tensor,
    ) -> Tensor:
        distance = (query_positions[..., :, None] - key_positions[..., None, :]).abs()
        return -tensors["slopes"] * distance[..., None, :, :]


def required_options(part: type[Any]) -> dict[str, Any]:
    """A value for each option of a mechanism or transform that has no default."""
    required = (f.name for f in dataclasses.fields(part) if f.default is dataclasses.MISSING)
    return {
        option: example(option, embedding_options(part)[option].json_schema())
        for option in required
    }


def example(option: str, schema: Mapping[str, Any]) -> Any:
    """A value that an option may have: the first of a list, or a number within its interval."""
    if option in NEEDS or "enum" in schema:
        return NEEDS.get(option) or schema["enum"][0]
    least = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    most = schema.get("maximum", schema.get("exclusiveMaximum", least + 4))
    return {"number": (least + most) / 2, "integer": (least + most) // 2}[schema["type"]]


CHOSEN = {"base": 129, "num_positions": 1100}
"""A base that keeps half the pairs, and positions for the longest sequence of most tests."""


def of_transform(name: str) -> dict[str, Any]:
    """RoPE, at a base that keeps half the pairs, with one transform of its frequencies."""
    transform = {"type": name, **required_options(TRANSFORM_TYPES.all()[name])}
    return {"type": "rotary", "base": 129, "transforms": [transform]}


ALONE = sorted(
    name
    for name in {*embedding_names(), *EMBEDDING_TYPES.all()}
    if named(name).composition["type"] != "layered"
)
"""All but patterns of embeddings, which are no module of their own (test_layered.py)."""
SPECS = {
    **{name: with_needs(name, **CHOSEN) for name in ALONE},
    **{f"rotary with {name}": of_transform(name) for name in TRANSFORM_TYPES.all()},
}
"""Every preset, every mechanism, and every transform, whether or not a preset has it."""
NAMES = list(SPECS)
every_embedding = pytest.mark.parametrize("name", NAMES)
# Defining it has registered it: only these tests are to see it.
del EMBEDDING_TYPES._types[LearnedSlopes.name]


@pytest.fixture(autouse=True, scope="module")
def _added() -> Iterator[None]:
    EMBEDDING_TYPES._types[LearnedSlopes.name] = LearnedSlopes
    yield
    del EMBEDDING_TYPES._types[LearnedSlopes.name]


SIZES = {"head_dim": 16, "num_heads": 4, "train_length": 64}
CONFIG = ModelConfig(num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, vocab_size=50)


def build(name: str, **sizes: int) -> PositionEmbedding:
    return build_embedding(SPECS[name], **{**SIZES, **sizes})


def queries_and_keys(length: int, kv_heads: int = 4, batch: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    shape = (batch, 4 + kv_heads, length, SIZES["head_dim"])
    drawn = torch.randn(shape, generator=generator)
    return drawn[:, :4], drawn[:, 4:]


def mixed(
    embedding: PositionEmbedding,
    q: Tensor,
    k: Tensor,
    positions: Tensor,
    seen: Seen | None = None,
    v: Tensor | None = None,
) -> Tensor:
    """The attention of all tokens, with the inputs as hidden states and, by default, as values."""
    hidden, v = q.transpose(1, 2).flatten(2), k.flip(-1) if v is None else v
    q, k = (embedded(embedding, x, positions) for x in (q, k))
    at = embedding.places(positions)
    kept = embedding.streams(hidden, q, k, at)
    return attend(embedding.scores(q, kept, at), v, seen or Seen(q.shape[2], k.shape[2]))


def embedded(embedding: PositionEmbedding, x: Tensor, positions: Tensor) -> Tensor:
    """Queries or keys, with absolute positions in the first dimensions of the hidden state."""
    states = x.transpose(1, 2).flatten(2)
    width = states.shape[-1]
    whole = torch.nn.functional.pad(states, (0, embedding.shape.width - width))
    added = embedding.embed(whole, positions)[..., :width]
    return added.unflatten(-1, (x.shape[1], x.shape[-1])).transpose(1, 2)


def test_an_added_embedding_is_found() -> None:
    assert "learned-slopes" in NAMES
    assert {*EMBEDDING_TYPES.all()} - {"layered"} < set(NAMES)


def test_every_transform_is_found() -> None:
    alone = [spec["transforms"] for spec in SPECS.values() if "transforms" in spec]
    assert {transform["type"] for [transform] in alone} == set(TRANSFORM_TYPES.all())


@every_embedding
def test_it_names_its_source(name: str) -> None:
    preset = PRESETS.get(name)
    definition = build(name).definition
    parts = [definition, *getattr(definition, "transforms", ())]
    assert preset.source if preset else all(part.source for part in parts)


@every_embedding
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_shapes_and_dtypes(name: str, kv_heads: int) -> None:
    embedding = build(name, num_kv_heads=kv_heads)
    q, k = queries_and_keys(9, kv_heads)
    rotated_q, rotated_k = embedding.rotate(q, k, torch.arange(9))
    assert (rotated_q.shape, rotated_k.shape) == (q.shape, k.shape)
    assert (rotated_q.dtype, rotated_k.dtype) == (q.dtype, k.dtype)
    if embedding.rotates:
        assert embedding.inv_freq.shape == (embedding.definition.width(embedding.shape) // 2,)
        assert embedding.inv_freq.dtype == torch.float64
    else:
        assert embedding.inv_freq is None
        assert rotated_q is q
        assert rotated_k is k
    bias = embedding.bias(torch.arange(5, 9), torch.arange(9))
    assert (bias is not None) == embedding.biases
    if bias is not None:
        assert (bias.shape, bias.dtype) == ((4, 4, 9), torch.float32)
    hidden = torch.randn(2, 9, 64)
    assert embedding.embed(hidden, torch.arange(9)).shape == hidden.shape


@every_embedding
def test_positions_count_tokens_or_are_drawn_in_order(name: str) -> None:
    embedding = build(name)
    positions = embedding.positions(30, offset=4)
    longest = embedding.definition.longest_sequence(embedding.shape)
    if longest is None:
        assert torch.equal(positions, torch.arange(4, 34))
    else:
        assert positions.shape == (30,)
        assert (positions.diff() > 0).all()
        assert positions[0] >= 4
        assert positions[-1] < longest


@every_embedding
def test_a_later_token_is_encoded_as_in_the_full_pass(name: str) -> None:
    """Rotated keys come from a cache where they can, else all are rotated for the longer
    sequence."""
    embedding = build(name, num_kv_heads=2)
    q, k = queries_and_keys(100, kv_heads=2)
    whole, late = torch.arange(100), torch.arange(90, 100)
    full_q, full_k = embedding.rotate(q, k, whole)
    late_q, again_k = embedding.rotate(q[:, :, 90:], k, late, key_positions=whole)
    torch.testing.assert_close(late_q, full_q[:, :, 90:], rtol=0, atol=1e-6)
    torch.testing.assert_close(again_k, full_k, rtol=0, atol=1e-6)
    if embedding.keys_cacheable:
        _, cached = embedding.rotate(q[:, :, :90], k[:, :, :90], whole[:90])
        _, added = embedding.rotate(q[:, :, 90:], k[:, :, 90:], late)
        for part, expected in ((cached, full_k[:, :, :90]), (added, full_k[:, :, 90:])):
            torch.testing.assert_close(part, expected, rtol=0, atol=1e-6)
    full_bias = embedding.bias(whole, whole)
    if full_bias is not None:
        late_bias = embedding.bias(late, whole)
        torch.testing.assert_close(late_bias, full_bias[:, 90:], rtol=1e-6, atol=1e-6)
    hidden = torch.randn(2, 100, 64)
    torch.testing.assert_close(
        embedding.embed(hidden[:, 90:], late), embedding.embed(hidden, whole)[:, 90:]
    )


@torch.no_grad()
@every_embedding
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_decoding_token_by_token_is_the_full_pass(name: str, kv_heads: int) -> None:
    """Attention of each new token on what a cache keeps, up to well past the training length."""
    embedding = build(name, num_kv_heads=kv_heads)
    length = 80
    q, k = queries_and_keys(length, kv_heads)
    v, hidden, cache = k.flip(-1), torch.randn(2, length, 64), LayerCache(8)

    def of(first: int, end: int, cache: LayerCache | None) -> Tensor:
        """The attention of the tokens `first` to `end`."""
        now, at = slice(first, end), embedding.places(torch.arange(end), end - first)
        kept = {"v": v[:, :, now]}
        kept |= embedding.streams(hidden[:, now], q[:, :, now], k[:, :, now], at)
        if cache is not None:
            kept = dict(cache.append(kept, end))
        scores = embedding.scores(q[:, :, now], kept, at)
        return attend(scores, kept["v"], Seen(end - first, end))

    for tokens in range(1, length + 1):
        stepped = of(tokens - 1, tokens, cache)
        if tokens in (1, 2, 64, 65, length):
            full = of(0, tokens, None)
            torch.testing.assert_close(stepped, full[:, :, -1:], rtol=0, atol=1e-5)


NUMBERS = torch.arange(100)[None].expand(2, -1) // 30
"""Those of packed documents of 30 tokens."""


@torch.no_grad()
@every_embedding
def test_what_a_query_does_not_see_has_no_weight(name: str) -> None:
    """In windows and in packed documents: other values there change nothing, to the last bit, and
    others of what it sees before itself do."""
    embedding = build(name, num_kv_heads=2)
    q, k = queries_and_keys(100, kv_heads=2)
    v, last, place = k.flip(-1), 70, torch.arange(100)
    positions = embedding.positions(100)
    for packed, window in itertools.product((False, True), (None, 1, 20)):
        documents = Documents.of(NUMBERS, embedding) if packed else None
        seen = Seen.of(100, 100, documents, window)
        is_seen = (place <= last) & (place > last - (window or 100))
        if packed:
            is_seen &= NUMBERS[0] == NUMBERS[0, last]
        earlier = is_seen & (place < last)

        def found(values: Tensor, seen: Seen = seen) -> Tensor:
            return mixed(embedding, q, k, positions, seen, values)[:, :, last]

        before = found(v)
        assert torch.equal(found(torch.where(is_seen[:, None], v, -3 * v)), before)
        if earlier.any():
            assert not torch.equal(found(torch.where(earlier[:, None], -3 * v, v)), before)


@torch.no_grad()
@every_embedding
@pytest.mark.parametrize("window", [None, 50])
def test_bfloat16_loses_no_more_than_a_rounding_of_logits(name: str, window: int | None) -> None:
    """Against float64 from the same rounded inputs, over more tokens than a model is trained on."""
    narrow = build(name, num_kv_heads=2).bfloat16()
    q, k = (x.bfloat16() for x in queries_and_keys(300, kv_heads=2))
    positions, seen = narrow.positions(300), Seen.of(300, 300, None, window)

    def found(dtype: torch.dtype, *, autocast: bool = False) -> Tensor:
        embedding = copy.deepcopy(narrow).to(dtype)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return mixed(embedding, q.to(dtype), k.to(dtype), positions, seen).double()

    exactly = found(torch.float64)
    for rounded in (found(torch.bfloat16), found(torch.float32, autocast=True)):
        assert (rounded - exactly).norm() < 0.02 * exactly.norm()


@every_embedding
def test_the_size_of_blocks_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    embedding = build(name, num_kv_heads=2).double()
    q, k = queries_and_keys(100, kv_heads=2)
    positions, seen = embedding.positions(100), Seen.of(100, 100, None, 37)

    def found() -> tuple[Tensor, ...]:
        of = [x.double().requires_grad_() for x in (q, k)]
        result = mixed(embedding, *of, positions, seen)
        wanted = [*of, *(each for each in embedding.parameters())]
        grads = torch.autograd.grad(result.square().sum(), wanted, materialize_grads=True)
        return result.detach(), *grads

    expected = found()
    for module, constant in (
        (exact, "QUERIES"),
        (block_attention, "QUERIES"),
        (block_attention, "BIASED_QUERIES"),
    ):
        monkeypatch.setattr(module, constant, 7)
    torch.testing.assert_close(found(), expected, rtol=1e-4, atol=5e-6)


@every_embedding
def test_a_method_whose_rotated_keys_go_stale_says_so(name: str) -> None:
    """What it does to 60 tokens, and what it does to them as the first of 100."""
    embedding = build(name)
    _, k = queries_and_keys(100)
    positions = [embedding.positions(length) for length in (60, 100)]
    _, short = embedding.rotate(k[:, :, :60], k[:, :, :60], positions[0])
    _, full = embedding.rotate(k, k, positions[1])
    stays = torch.allclose(short, full[:, :, :60], atol=1e-5)
    assert stays == (embedding.keys_cacheable or not embedding.rotates)


@every_embedding
def test_sequences_may_have_their_own_positions(name: str) -> None:
    embedding = build(name, num_kv_heads=2)
    q, k = queries_and_keys(9, kv_heads=2)
    positions = torch.stack([torch.arange(9), torch.arange(40, 49)])
    together = mixed(embedding, q, k, positions)
    for index in range(2):
        one = slice(index, index + 1)
        alone = mixed(embedding, q[one], k[one], positions[index])
        torch.testing.assert_close(together[one], alone, rtol=0, atol=1e-5)


@every_embedding
def test_angles_and_biases_are_float32_in_a_bfloat16_model_and_under_autocast(name: str) -> None:
    embedding = build(name)
    narrow = copy.deepcopy(embedding).to(torch.bfloat16)
    for buffer, before in zip(narrow.buffers(), embedding.buffers(), strict=True):
        assert buffer.dtype == before.dtype
        assert torch.equal(buffer, before)
    positions = torch.arange(1000, 1040)
    expected = embedding.cos_sin(positions)
    with torch.autocast("cpu", torch.bfloat16):
        under_autocast = embedding.cos_sin(positions)
        bias = embedding.bias(positions, positions)
    for cos_sin in (narrow.cos_sin(positions), under_autocast):
        assert (cos_sin is None) == (expected is None)
        for ours, wide in zip(cos_sin or (), expected or (), strict=True):
            assert ours.dtype == torch.float32
            assert torch.equal(ours, wide)
    if bias is not None:
        assert torch.equal(bias, embedding.bias(positions, positions))


@every_embedding
def test_lengths_far_beyond_training_do_not_overflow(name: str) -> None:
    embedding = build(name)
    q, k = queries_and_keys(8)
    longest = embedding.definition.longest_sequence(embedding.shape)
    far = torch.arange(8) * (150_000 if longest is None else (longest - 1) // 7)
    assert mixed(embedding, q, k, far).isfinite().all()


@every_embedding
@given(shift=st.integers(0, 10_000), gap=st.integers(1, 50))
@settings(max_examples=10, deadline=None)
def test_scores_of_a_relative_method_do_not_change_under_a_shift(
    name: str, shift: int, gap: int
) -> None:
    embedding = build(name)
    q, k = queries_and_keys(6)
    positions = gap * torch.arange(6)
    if embedding.definition.shift_invariant:
        torch.testing.assert_close(
            mixed(embedding, q, k, positions + shift),
            mixed(embedding, q, k, positions),
            rtol=0,
            atol=1e-4,
        )


@every_embedding
def test_a_method_that_is_not_relative_says_so(name: str) -> None:
    embedding = build(name)
    q, k = queries_and_keys(6)
    at_start, later = (mixed(embedding, q, k, 11 * torch.arange(6) + shift) for shift in (0, 1001))
    moved = (at_start - later).abs().max().item()
    assert (moved < 1e-3) == embedding.definition.shift_invariant


@every_embedding
def test_draws_follow_from_seed_and_layer_and_leave_the_global_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    layouts = [(7, 1), (7, 1), (7, 2), (8, 1), (8, 2)]
    found = [build(name, seed=seed, layer=layer).state_dict() for seed, layer in layouts]
    assert torch.equal(torch.get_rng_state(), before)
    for key, first in found[0].items():
        again, *others = (tensors[key] for tensors in found[1:])
        assert torch.equal(again, first)
        if not torch.equal(others[0], first):  # it is drawn
            pairs = itertools.combinations((first, *others), 2)
            assert not any(torch.equal(one, other) for one, other in pairs)


@every_embedding
def test_loading_restores_what_was_drawn_or_learned_bit_for_bit(name: str) -> None:
    saved, fresh = build(name, seed=1), build(name, seed=2)
    with torch.no_grad():
        for parameter in saved.parameters():
            parameter.add_(0.125)
    fresh.load_state_dict(saved.state_dict())
    q, k = queries_and_keys(20)
    assert torch.equal(*(mixed(each, q, k, torch.arange(20)) for each in (fresh, saved)))


@every_embedding
def test_drawn_and_learned_tensors_are_saved_and_constants_are_not(name: str) -> None:
    embedding = build(name)
    tensors = embedding.definition.tensors(embedding.shape)
    assert embedding.state_dict().keys() == {*tensors.drawn, *tensors.learned}
    assert {n for n, _ in embedding.named_parameters()} == {*tensors.learned}
    sizes = {learned: tuple(tensor.shape) for learned, tensor in tensors.learned.items()}
    assert embedding.definition.learned_sizes(embedding.shape) == sizes
    assert all(tensor.dim() > 0 for tensor in tensors.learned.values())  # FSDP2 shards them


@every_embedding
def test_tensors_survive_a_model_built_without_memory(name: str) -> None:
    """`to_empty` after building on the meta device: what follows from the options stays right."""
    with torch.device("meta"):
        embedding = build(name)
    assert not any(parameter.is_meta for parameter in embedding.parameters())
    embedding.to_empty(device="cpu")
    expected = build(name)
    for buffer, before in zip(embedding.buffers(), expected.buffers(), strict=True):
        assert torch.equal(buffer, before)


@every_embedding
def test_gradients_reach_the_inputs_and_all_that_is_learned(name: str) -> None:
    embedding = build(name)
    q, k = (x.clone().requires_grad_() for x in queries_and_keys(6))
    mixed(embedding, q, k, torch.arange(6)).square().sum().backward()
    for tensor in (q, k, *embedding.parameters()):
        assert tensor.grad.isfinite().all()
        assert tensor.grad.abs().sum() > 0


@every_embedding
def test_a_decoder_trains_with_it(name: str) -> None:
    model = Decoder(CONFIG, SPECS[name], train_length=64, seed=3)
    tokens = torch.arange(40).remainder(50).expand(2, 40)
    logits = model(tokens).logits
    assert logits.shape == (2, 40, 50)
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    for parameter in model.parameters():
        assert parameter.grad.isfinite().all()


@every_embedding
def test_a_decoders_weights_and_its_embeddings_do_not_depend_on_each_other(name: str) -> None:
    model = Decoder(CONFIG, SPECS[name], train_length=64, seed=3)
    plain = Decoder(CONFIG, "nope", train_length=64, seed=3).state_dict()
    assert all(
        torch.equal(plain[key], weight)
        for key, weight in model.state_dict().items()
        if key in plain
    )
    for layer, embedding in enumerate(model.position_embeddings):
        alone = build(name, num_kv_heads=2, seed=3, layer=layer).state_dict()
        assert embedding.state_dict().keys() == alone.keys()
        assert all(
            torch.equal(tensor, alone[key]) for key, tensor in embedding.state_dict().items()
        )


@pytest.mark.parametrize(
    "name", [name for name in PRESETS if "shared_layers" in EMBEDDINGS.entry(name).options]
)
@pytest.mark.parametrize("shared", [None, True, False])
def test_layers_share_what_they_have_or_not(name: str, shared: bool | None) -> None:
    """As asked, or as the embedding itself says."""
    options = {} if shared is None else {"shared_layers": shared}
    model = Decoder(CONFIG, {**SPECS[name], **options}, train_length=64, seed=1)
    embeddings = list(model.position_embeddings)
    default = EMBEDDINGS.entry(name).options["shared_layers"].default
    assert len(embeddings) == (1 if (default if shared is None else shared) else 2)
    model(torch.arange(10)[None]).logits.square().sum().backward()
    for parameter in model.position_embeddings.parameters():
        assert parameter.grad.abs().sum() > 0


@every_embedding
def test_its_learned_parameters_are_known_beforehand(name: str) -> None:
    model = Decoder(CONFIG, SPECS[name], train_length=64)
    learned = sum(parameter.numel() for parameter in model.position_embeddings.parameters())
    shape = Shape(**{**SIZES, "num_kv_heads": CONFIG.num_kv_heads})
    assert learned == model.embedding.learned_parameters(shape, CONFIG.num_layers)


@every_embedding
def test_its_composition_builds_the_same_embedding(name: str) -> None:
    composition = resolve_embedding(SPECS[name])
    again = build_embedding(composition, **SIZES)
    assert again.definition == build(name).definition


@every_embedding
def test_transformers_has_the_same_rotation_if_it_has_a_form_for_it(name: str) -> None:
    """Within the training length and beyond it; what is read back is the same embedding."""
    embedding = build(name)
    try:
        rope = embedding.definition.to_hf(embedding.shape, 256)
    except EmbeddingError as error:
        assert "(allowed: rotary with at most one of " in str(error)  # noqa: PT017
        return
    config = llama_config(SIZES["head_dim"], rope.max_length, **rope.parameters)
    theirs = GPTNeoXRotaryEmbedding(config)  # as Llama's, and of a part of each head, too
    composition, train_length = Rotary.from_hf(rope)
    read = build_embedding(composition, **{**SIZES, "train_length": train_length})
    for length in (64, 200):
        positions = torch.arange(length)
        cos, sin = theirs(torch.zeros(1), positions[None])
        half = cos.shape[-1] // 2
        for ours in (embedding.cos_sin(positions), read.cos_sin(positions)):
            torch.testing.assert_close(ours[0], cos, rtol=0, atol=1e-4)
            torch.testing.assert_close(ours[1][..., half:], sin[..., half:], rtol=0, atol=1e-4)


def test_a_rope_type_of_transformers_is_one_transform() -> None:
    names = [name for kind in TRANSFORM_TYPES.all().values() for name in kind.hf_types]
    assert {"default", *names} == set(hf_transforms())
    assert len(names) == len(set(names))
    assert set(names) <= ROPE_INIT_FUNCTIONS.keys()


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="can't be 'rotary', which is the name of"):

        class Second(Embedding, name="rotary"):
            pass
