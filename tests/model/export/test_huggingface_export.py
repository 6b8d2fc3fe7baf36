"""An exported model is the same model to a process that has transformers and no fope-lab."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpt2_block
import pytest
import torch
from example_embeddings import with_needs
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoTokenizer, DynamicCache, PreTrainedTokenizerFast
from transformers.dynamic_module_utils import get_relative_import_files
from worked_examples import FILES

from benchmarks.parity import random_model
from fope_lab.cli import main
from fope_lab.config import plugins
from fope_lab.data.problems import DataError
from fope_lab.embeddings import composition, embedding_names, resolve_embedding, spec
from fope_lab.embeddings.base import EMBEDDING_TYPES
from fope_lab.embeddings.spec import parse_embedding
from fope_lab.model import Decoder, ModelConfig, load_model, read_config, save_model
from fope_lab.model.export.folder import export
from fope_lab.model.export.sources import MODEL_FILE

CONFIG = ModelConfig(num_layers=2, num_heads=4, head_dim=16, num_kv_heads=2, vocab_size=272)
SMALL: dict[str, Any] = {"num_layers": 2, "num_heads": 2, "head_dim": 16, "vocab_size": 272}
TIED_RELU = ModelConfig(
    **SMALL, tie_embeddings=True, qk_norm="rms", feed_forward="relu", scale_embeddings=True
)
GPT2 = ModelConfig(**SMALL, **gpt2_block.GPT2, dropout=0.1)
TRAIN_LENGTH = 64


def needed(name: str) -> Any:
    """An embedding with what it needs, at a base that leaves FoPE a floor."""
    return resolve_embedding(with_needs(name, base=129.0, num_positions=2 * TRAIN_LENGTH))


OF_GEMMA3 = ModelConfig(
    **SMALL,
    norm="shifted_rms",
    norm_place="both",
    qk_norm="head_rms",
    biases="qkv",
    attention_cap=5.0,
    logit_cap=5.0,
    score_size=20.0,
)
CASES: dict[str, tuple[ModelConfig, Any, torch.dtype]] = {
    **{name: (CONFIG, needed(name), torch.float32) for name in embedding_names()},
    "tied-relu": (TIED_RELU, "fope", torch.float32),
    "gpt2": (GPT2, needed("learned"), torch.float32),
    "gemma3": (OF_GEMMA3, "fope", torch.float32),
    "bfloat16-fope": (CONFIG, needed("fope"), torch.bfloat16),
    "bfloat16-kerple": (CONFIG, needed("kerple"), torch.bfloat16),
}


AGAIN = ["fope", "kerple", "tied-relu", "gpt2", "bfloat16-fope"]


def tokens(length: int = 100) -> torch.Tensor:
    return torch.randint(0, 256, (2, length), generator=torch.Generator().manual_seed(1))


def checkpoint(folder: Path, name: str = "fope", tokenizer: str = "byte") -> Decoder:
    """A checkpoint whose learned tensors are not those that every model starts from."""
    config, embedding, dtype = CASES[name]
    model = Decoder(config, embedding, train_length=TRAIN_LENGTH, seed=5).eval().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    save_model(folder, model, context_length=128, tokenizer=tokenizer)
    return model


def logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)  # for randomised positions
    with torch.no_grad():
        found = model(ids).logits
    assert isinstance(found, torch.Tensor)
    return found


ELSEWHERE = """
import json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("fope_lab", "trainers", "pydantic"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(1)

def logits(folder):
    dtype = torch.bfloat16 if folder.startswith("bfloat16") else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=dtype)
    torch.manual_seed(0)
    with torch.no_grad():
        return model, model(ids).logits

ids = torch.load("ids.pt")
for name in json.loads(sys.argv[1]):
    try:
        model, found = logits(name)
        greedy = model.generate(ids[:1, :9], max_new_tokens=6, do_sample=False)
        result = {"logits": found, "greedy": greedy}
        if name in json.loads(sys.argv[2]):
            model.save_pretrained(name + "-again")
            result["again"] = logits(name + "-again")[1]
    except Exception as error:
        result = {"error": repr(error)}
    torch.save(result, name + ".pt")
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Decoder]]:
    """All models exported, and what another process, which can't import fope-lab, found of them."""
    root = tmp_path_factory.mktemp("elsewhere")
    models = {}
    (root / "gaussian.py").write_text(FILES["fope_lab/embeddings/gaussian.py"])
    with pytest.MonkeyPatch.context() as patch:  # afterwards there is no such plug-in
        patch.setattr(plugins, "_loaded", dict(plugins._loaded))
        patch.setattr(EMBEDDING_TYPES, "_types", dict(EMBEDDING_TYPES.all()))
        plugins.load_plugins(["./gaussian.py"], root)
        patch.setitem(CASES, "gaussian", (CONFIG, needed("gaussian"), torch.float32))
        for name in CASES:
            models[name] = checkpoint(root / "checkpoints" / name, name)
            export(root / "checkpoints" / name, root / name)
    torch.save(tokens(), root / "ids.pt")
    environment = {**os.environ, "HF_HOME": str(root / "hf"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-I", "-c", ELSEWHERE, json.dumps(list(models)), json.dumps(AGAIN)]
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return root, models


@pytest.mark.parametrize("name", [*CASES, "gaussian"])  # which is a plug-in's
def test_without_fope_lab_the_logits_are_the_same_bits(
    name: str, elsewhere: tuple[Path, dict[str, Decoder]]
) -> None:
    root, models = elsewhere
    found = torch.load(root / f"{name}.pt")
    assert "error" not in found, found
    expected = logits(models[name], tokens())
    assert torch.equal(found["logits"], expected)
    assert torch.equal(found.get("again", expected), expected)
    assert ("again" in found) == (name in AGAIN), "saved and loaded again by transformers"


FLOAT32 = [name for name, case in CASES.items() if case[2] == torch.float32]


@pytest.mark.parametrize(
    "name", [name for name in FLOAT32 if not parse_embedding(CASES[name][1]).draws_positions]
)
def test_it_generates(name: str, elsewhere: tuple[Path, dict[str, Decoder]]) -> None:
    root, models = elsewhere
    ids = tokens()[:1, :9]
    for _ in range(6):
        ids = torch.cat([ids, logits(models[name], ids)[:, -1:].argmax(-1)], dim=-1)
        if ids[0, -1] == 256:  # the end of a text
            break
    assert torch.load(root / f"{name}.pt")["greedy"].tolist() == ids.tolist()


def test_the_code_is_our_own_but_for_imports(elsewhere: tuple[Path, dict[str, Decoder]]) -> None:
    root, _ = elsewhere
    every = {path for name in CASES for path in (root / name).glob("*.py")}
    files = {*{(path.name, path.read_bytes()): path for path in every}.values()}
    package = Path(spec.__file__).parents[1]
    sources = {
        "_".join(path.relative_to(package).with_suffix("").parts): path
        for path in package.rglob("*.py")
    }
    assert {"model_decoder.py", "embeddings_fire.py"} <= {path.name for path in files}
    for path in files - {path for path in files if path.name == "config_discovery.py"}:
        ours = sources[path.stem].read_text()
        pairs = zip(ours.splitlines(), path.read_text().splitlines(), strict=True)
        different = [(before.split(), after.split()) for before, after in pairs if before != after]
        assert all(a[0] == b[0] == "from" and b[1][0] == "." for a, b in different), path
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            else:
                continue
            allowed = {"torch", "transformers", *sys.stdlib_module_names}
            assert {name.partition(".")[0] for name in names} <= allowed, path


@pytest.mark.parametrize("name", ["rope", "fope", "alibi"])
def test_the_loader_finds_every_file_by_name(
    name: str, elsewhere: tuple[Path, dict[str, Decoder]]
) -> None:
    """It follows imports of the form `from .name import …`, as text."""
    folder = elsewhere[0] / name
    found = {Path(path).name for path in get_relative_import_files(folder / MODEL_FILE)}
    assert found | {MODEL_FILE} == {path.name for path in folder.glob("*.py")}
    assert ("embeddings_fourier.py" in found) == (name == "fope"), "what it needs alone"


@pytest.mark.parametrize("name", embedding_names())
def test_a_composition_needs_no_checking(name: str) -> None:
    canonical = json.loads(json.dumps(needed(name)))
    assert composition.parse_embedding(canonical) == spec.parse_embedding(canonical)


def word_tokenizer(folder: Path) -> str:
    words = {word: number for number, word in enumerate(["<eos>", "<pad>", "one", "two", "three"])}
    rust = RustTokenizer(WordLevel(words, unk_token="<pad>"))
    rust.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=rust, eos_token="<eos>", pad_token="<pad>")
    fast.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("file", ["", "tokenizer.json"])
def test_the_tokenizer_goes_with_it(tmp_path: Path, file: str) -> None:
    """Of a file alone, its end of text is known by its name."""
    name = Path(word_tokenizer(tmp_path / "words")) / file
    checkpoint(tmp_path / "checkpoint", tokenizer=str(name))
    folder = export(tmp_path / "checkpoint", tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("three one").input_ids == [4, 2]
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<eos>", "<pad>")
    generation = json.loads((folder / "generation_config.json").read_text())
    assert (generation["eos_token_id"], generation["pad_token_id"]) == (0, 1)
    assert read_config(folder).tokenizer == str(folder)


def test_a_hugging_face_folder_can_be_exported_too(tmp_path: Path) -> None:
    from fope_lab.model.export.modeling import FopeLabForCausalLM

    random_model("gemma").save_pretrained(tmp_path / "gemma")
    word_tokenizer(tmp_path / "gemma")
    folder = export(tmp_path / "gemma", tmp_path / "out")
    again = FopeLabForCausalLM.from_pretrained(folder)
    assert torch.equal(logits(again, tokens()), logits(load_model(tmp_path / "gemma"), tokens()))


@pytest.mark.parametrize("name", ["fope", "kerple", "tied-relu", "bfloat16-fope"])
def test_what_is_exported_is_a_checkpoint_too(tmp_path: Path, name: str) -> None:
    """As it is, and as transformers save it again, in its dtype and in shards."""
    from fope_lab.model.export.modeling import FopeLabForCausalLM

    decoder = checkpoint(tmp_path / "checkpoint", name).float()
    folder = export(tmp_path / "checkpoint", tmp_path / "out")
    model = FopeLabForCausalLM.from_pretrained(folder, dtype=CASES[name][2])
    assert model.decoder.embed_tokens.weight.dtype == CASES[name][2]
    model.save_pretrained(tmp_path / "again", max_shard_size="50KB")
    assert len(list((tmp_path / "again").glob("*.safetensors"))) > 1
    for path in (folder, tmp_path / "again"):
        assert read_config(path) == read_config(tmp_path / "checkpoint")
        loaded = load_model(path)
        assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
        assert torch.equal(logits(loaded, tokens()), logits(decoder, tokens()))


def exported(tmp_path: Path, name: str = "fope") -> tuple[Any, Decoder]:
    from fope_lab.model.export.modeling import FopeLabForCausalLM

    decoder = checkpoint(tmp_path / "checkpoint", name)
    folder = export(tmp_path / "checkpoint", tmp_path / "out")
    return FopeLabForCausalLM.from_pretrained(folder).eval(), decoder


def test_labels_give_transformers_loss(tmp_path: Path) -> None:
    model, decoder = exported(tmp_path)
    labels = tokens().masked_fill(torch.arange(100) < 20, -100)
    loss = model(tokens(), labels=labels).loss
    expected = torch.nn.functional.cross_entropy(
        logits(decoder, tokens())[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    )
    torch.testing.assert_close(loss, expected)
    total = model(tokens(), labels=labels, num_items_in_batch=torch.tensor(10)).loss
    torch.testing.assert_close(total, expected * int((labels[:, 1:] != -100).sum()) / 10)


def test_it_trains_with_gradient_checkpointing(tmp_path: Path) -> None:
    model, _ = exported(tmp_path)
    model.train()
    found = []
    for enable in (model.activation_checkpointing_disable, model.activation_checkpointing_enable):
        enable()
        model.zero_grad()
        model(tokens(), labels=tokens()).loss.backward()
        found.append([parameter.grad for parameter in model.parameters()])
        checkpointed = model.decoder.gradient_checkpointing
    assert checkpointed
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("name", ["fope", "alibi", "fire", "sinusoidal", "dynamic-ntk"])
def test_padding_on_the_left_changes_nothing(tmp_path: Path, name: str) -> None:
    model, _ = exported(tmp_path, name)
    long, short = tokens(90)[0], tokens(90)[1, :70]
    padded = torch.stack([long, torch.cat([torch.full((20,), 257), short])])
    mask = torch.stack([torch.ones(90), torch.cat([torch.zeros(20), torch.ones(70)])]).long()
    with torch.no_grad():
        together = model(padded, attention_mask=mask).logits
        for dtype in (torch.bool, torch.float32, torch.float16):
            found = model(padded, attention_mask=mask.to(dtype)).logits
            assert torch.equal(found, together), dtype
    torch.testing.assert_close(together[1, 20:], logits(model, short[None])[0])
    torch.testing.assert_close(together[0], logits(model, long[None])[0])
    prompts = {"input_ids": padded, "attention_mask": mask}
    both = model.generate(**prompts, max_new_tokens=4, do_sample=False)
    alone = model.generate(short[None], max_new_tokens=4, do_sample=False)
    assert both[1, 20:].tolist() == alone[0].tolist()


class Passes:
    """How many tokens each pass of a decoder has read."""

    def __init__(self, model: Any) -> None:
        self.lengths: list[int] = []
        model.decoder.register_forward_pre_hook(self._count)

    def _count(self, module: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        self.lengths.append(arguments[0].shape[1])


@pytest.mark.parametrize(
    ("name", "how", "lengths"),
    [
        ("fope", {}, [9, 1, 1, 1]),
        ("fire", {"do_sample": True, "num_return_sequences": 2}, [9, 1, 1, 1]),
        ("fope", {"use_cache": False}, [9, 10, 11, 12]),
        ("fope", {"num_beams": 2}, [9, 10, 11, 12]),
        ("dynamic-ntk", {}, [9, 10, 11, 12]),
    ],
)
def test_a_cache_is_used_where_it_changes_nothing(
    tmp_path: Path, name: str, how: dict[str, Any], lengths: list[int]
) -> None:
    model, _ = exported(tmp_path, name)
    passes = Passes(model)
    options = {"do_sample": False, "max_new_tokens": 4, "eos_token_id": None, **how}
    torch.manual_seed(0)
    found = model.generate(tokens()[:1, :9], **options)
    assert passes.lengths == lengths
    torch.manual_seed(0)
    assert torch.equal(model.generate(tokens()[:1, :9], **{**options, "use_cache": False}), found)


def test_what_it_does_not_have_is_an_error(tmp_path: Path) -> None:
    model, _ = exported(tmp_path)
    with pytest.raises(TypeError, match=r"found .*DynamicCache.* \(allowed: GenerationCache"):
        model(tokens(), past_key_values=DynamicCache())
    with pytest.raises(TypeError, match="position_ids"):
        model(tokens(), position_ids=torch.arange(100)[None])
    model(tokens(), output_attentions=False, use_cache=True)


def test_the_vocabulary_is_not_resized(tmp_path: Path) -> None:
    model, decoder = exported(tmp_path)
    with pytest.raises(NotImplementedError, match=r"cannot be resized: it stays at 272"):
        model.resize_token_embeddings(300)
    assert model.config.vocab_size == 272
    assert torch.equal(logits(model, tokens()), logits(decoder, tokens()))


def test_it_is_transformers_sdpa_attention(tmp_path: Path) -> None:
    from fope_lab.model.export.modeling import FopeLabForCausalLM

    _, decoder = exported(tmp_path)
    model = FopeLabForCausalLM.from_pretrained(tmp_path / "out", attn_implementation="sdpa")
    assert torch.equal(logits(model, tokens()), logits(decoder, tokens()))


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    checkpoint(tmp_path / "checkpoint", tokenizer="/no/tokenizer.json")
    with pytest.raises(DataError, match="does not exist"):
        export(tmp_path / "checkpoint", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint(tmp_path / "checkpoint")
    (tmp_path / "out").mkdir()
    command = ["export", str(tmp_path / "checkpoint"), str(tmp_path / "out")]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert f"from_pretrained('{tmp_path / 'out'}', trust_remote_code=True)" in printed
    assert f"AutoTokenizer.from_pretrained('{tmp_path / 'out'}', trust_remote_code=True)" in printed
    assert main(command) == 2
    assert "exists already and is not an empty folder" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "nothing"), str(tmp_path / "new")]) == 2
    assert "is not a folder" in capsys.readouterr().err
