# %% [markdown]
# # Extend a Hugging Face model
#
# A Llama, made here with random weights and a tokenizer of its own, stands for the model that you
# have. It is evaluated as it is, extended from 32 to 64 tokens in two ways, evaluated again,
# exported and loaded with transformers. With a model of the hub, `from` is `hf:NAME@COMMIT`.

# %%
from pathlib import Path
from tempfile import mkdtemp

folder = Path(mkdtemp())
store = folder / "store"

# %% [markdown]
# ## The model
#
# Any folder that transformers saved will do.

# %%
from pydoc_data.topics import topics

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()

tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
special = ["<unk>", "<eos>"]
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(
    vocab_size=512, special_tokens=special, initial_alphabet=alphabet, show_progress=False
)
tokenizer.train_from_iterator(topics.values(), trainer)
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>")

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(fast),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=2,
    max_position_embeddings=32,
    rope_parameters={"rope_type": "default", "rope_theta": 100.0},
)
LlamaForCausalLM(config).save_pretrained(folder / "llama")
fast.save_pretrained(folder / "llama")
sorted(path.name for path in (folder / "llama").iterdir())

# %% [markdown]
# ## The sweep
#
# `perplexity.from` is an axis: the model as it is, and each extended one, in one table.

# %%
import fope_lab

(folder / "longer.yaml").write_text("""
name: longer
stages:
  extend:
    kind: extend
    from: ./llama
    embedding: {type: yarn, base: 100, factor: 2}
    data: {corpus: python-docs, length: 64}
    train: {tokens: 100_000, batch_tokens: 2048, learning_rate: 5e-3}
  perplexity:
    kind: perplexity
    from: extend
    corpus: python-docs
    lengths: [16, 32, 64, 128]
    tokens: 20_000
grid:
  extend.embedding: [{type: yarn, base: 100, factor: 2}, {type: pi, base: 100, factor: 2}]
  perplexity.from: [./llama, extend]
""")
sweep = fope_lab.load_sweep(folder / "longer.yaml")

# %%
from IPython.utils.capture import capture_output

with capture_output():  # the live view is for a terminal
    failed = fope_lab.run(sweep, store)
failed

# %% [markdown]
# ## Before and after
#
# The weights were random, so "before" is near the size of the vocabulary.

# %%
frame = fope_lab.results(sweep, store)
curves = frame[frame.metric == "perplexity_by_length"]
curves.pivot_table("value", index=["perplexity.from", "embedding"], columns="x").round(1)

# %% [markdown]
# ## Export
#
# YaRN is one of the embeddings that transformers has, so the model can leave as transformers' own
# Llama. The stage is named by its label.

# %%
from fope_lab.cli import main

[stage] = [s for s in sweep.stages if s.kind == "extend" and "yarn" in s.embedding]
main(["export", stage.key, str(folder / "longer"), "--to", "llama", "--store", str(store)])

# %%
from transformers import AutoModelForCausalLM, AutoTokenizer

theirs = AutoModelForCausalLM.from_pretrained(folder / "longer").eval()
words = AutoTokenizer.from_pretrained(folder / "llama")(
    "The with statement is used to", return_tensors="pt"
)
ours = fope_lab.load_model(folder / "longer")
with torch.no_grad():
    difference = (theirs(words.input_ids).logits - ours(words.input_ids).logits).abs().max()
type(theirs).__name__, theirs.config.rope_parameters["rope_type"], bool(difference < 1e-4)
