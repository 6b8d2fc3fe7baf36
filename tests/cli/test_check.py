"""`fope-lab check` on a model of each family, and on copies that are broken in the field's ways."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from benchmarks.parity import MODELS, random_model
from fope_lab.cli import main
from fope_lab.model import Decoder, ModelConfig, save_model

FIRST = {MODELS[name]["model_type"]: name for name in reversed(MODELS)}


def write_tokenizer(folder: Path, tokens: int = 320, begins: bool = False) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {"<s>": 0, "</s>": 1, "a": 2, **{f"t{i}": i for i in range(3, tokens)}}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if begins:
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)


def saved(folder: Path, name: str, **tokenizer: Any) -> Path:
    random_model(name).save_pretrained(folder)
    write_tokenizer(folder, **tokenizer)
    return folder


def rewrite(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["check", *words, "--store", "/nonexistent"]) == code
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("family", FIRST)
def test_a_sound_model_of_each_family(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], family: str
) -> None:
    saved(tmp_path / "model", FIRST[family], begins=family.startswith("gemma"))
    text = said(capsys, str(tmp_path / "model"), "--longest", "64")
    assert "no logit differs by more than rounding" in text


def test_it_says_what_the_layers_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path / "model", "gemma3-linear", begins=True)
    words = [str(tmp_path / "model"), "--no-logits", "--out", str(tmp_path / "waves.svg")]
    assert main(["check", *words, "--json", "--store", "/nonexistent"]) == 0
    one, two = json.loads(capsys.readouterr().out)["kinds"]
    assert (one["layers"], one["base"], one["window"]) == ([0, 2], 10_000.0, 8)
    assert (two["layers"], two["base"], two["window"]) == ([1], 1_000_000.0, None)
    assert two["scaling"] == ["interpolate factor 8"]
    assert (one["rotating"], one["head_dim"]) == (16, 16)
    picture = ET.parse(tmp_path / "waves.svg").getroot()
    assert "window 8" in "".join(picture.itertext())


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
BROKEN: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "a factor that does nothing": (
        "gqa",
        {"rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default", "factor": 4.0}},
        {},
        "the factor 4 does nothing, because the type is default",
    ),
    "a factor of one": (
        "gqa",
        {"rope_parameters": {"rope_theta": 10_000.0, "rope_type": "linear", "factor": 1.0}},
        {},
        "a factor of 1 scales nothing, so linear does nothing",
    ),
    "an attention factor lost": (
        "yarn",
        {"rope_parameters": {**YARN, "rope_theta": 10_000.0, "attention_factor": 1.0}},
        {},
        "YaRN's attention factor is 1 here, not 0.1·ln s + 1 = 1.1386",
    ),
    "partial or proportional": (
        "gqa",
        {
            "rope_parameters": {
                "rope_type": "proportional",
                "rope_theta": 10_000.0,
                "partial_rotary_factor": 0.5,
            }
        },
        {},
        "only the fastest 0.5 of the pairs rotate",
    ),
    "global scaling dropped": (
        "gemma3",
        {"max_position_embeddings": 131_072},
        {"begins": True},
        "the full layers are not scaled",
    ),
    "a base for version 5 alone": (
        "base",
        {},
        {},
        "the base 500000 is in rope_parameters alone: transformers 4 reads 10000",
    ),
    "two bases": (
        "base",
        {"rope_theta": 10_000.0},
        {},
        "rope_theta is 10000, and rope_parameters has [500000.0]",
    ),
    "a scaling for version 5 alone": ("linear", {}, {}, "transformers 4 reads none"),
    "a factor beside another length": (
        "yarn",
        {"max_position_embeddings": 512},
        {},
        "the factor 4 takes 32 tokens to 128, and max_position_embeddings is 512",
    ),
    "a token at the beginning": (
        "qwen2",
        {},
        {"begins": True},
        "models of qwen2 are trained without a token there",
    ),
    "no token at the beginning": (
        "gemma2",
        {},
        {"begins": False},
        "models of gemma2 are trained with one",
    ),
    "a vocabulary that is too short": (
        "gqa",
        {},
        {"tokens": 330},
        "the tokenizer has 330 tokens, and the model 320: the ids from 320 on have no embedding",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_what_goes_wrong_without_a_word_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    name, changes, tokenizer, message = BROKEN[fault]
    saved(tmp_path / "model", name, **tokenizer)
    rewrite(tmp_path / "model", **changes)
    assert message in said(capsys, str(tmp_path / "model"), "--no-logits")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: rewrite(folder, mlp_bias=True), "mlp_bias: found true"),
        (
            lambda folder: rewrite(folder, some_feature=3),
            "some_feature: found 3, which is not known",
        ),
        (lambda folder: rewrite(folder, partial_rotary_factor=0.5), "partial_rotary_factor"),
    ],
)
def test_a_model_that_is_not_read_says_why(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], None],
    message: str,
) -> None:
    change(saved(tmp_path / "model", "gqa"))
    text = said(capsys, str(tmp_path / "model"), code=1)
    assert "not read:" in text
    assert message in text


def test_two_models_differ_in_these_layers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = saved(tmp_path / "one", "gqa"), saved(tmp_path / "two", "gqa")
    text = said(capsys, str(one), "--against", str(two), "--longest", "32")
    assert "do the same" in text
    assert "no logit differs" in text
    rope = {"rope_theta": 10_000.0, "rope_type": "dynamic", "factor": 2.0}
    rewrite(two, rope_parameters=rope, max_position_embeddings=40)
    text = said(capsys, str(one), "--against", str(two), "--longest", "128", code=1)
    assert "layers 0–2: scaling none beside dynamic_ntk growth 2" in text
    assert "train length 128 beside 40" in text
    assert "logits differ at 64 tokens, from token" in text


def test_a_checkpoint_of_ours_has_no_other_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ModelConfig(num_layers=2, num_heads=2, head_dim=16, vocab_size=260)
    model = Decoder(sizes, {"type": "alibi"}, train_length=32)
    save_model(tmp_path / "model", model, context_length=32, tokenizer="byte")
    text = said(capsys, str(tmp_path / "model"))
    assert "transformers has no class of its own" in text
    assert "alibi" in text


def test_what_can_not_be_compared_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = saved(tmp_path / "one", "gqa"), saved(tmp_path / "two", "gpt2")
    text = said(capsys, str(one), "--longest", "8")
    assert "8 " in text
    said(capsys, str(one), "--against", str(two), "--longest", "1024", code=1)
    rewrite(two, vocab_size=400)
    text = said(capsys, str(one), "--against", str(two))
    assert "a vocabulary of 320 beside 400 tokens" in text
    assert main(["check", str(one), "--out", str(tmp_path / "none" / "x.svg")]) == 2
    assert "none is not a folder" in capsys.readouterr().err
    yarn = {"rope_type": "yarn", "rope_theta": 10_000.0}
    rewrite(one, rope_parameters=yarn, max_position_embeddings=128)
    assert main(["check", str(one)]) in (1, 2)
    found = capsys.readouterr()
    assert "factor" in found.out + found.err


def test_no_such_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "nowhere"), "--store", str(tmp_path)]) == 2
    assert "nowhere" in capsys.readouterr().err
