# %% [markdown]
# # A first sweep and its results
#
# A sweep file, its plan, its run, and its numbers as a pandas frame, all from Python. The trainings
# are tiny, so that this notebook runs in seconds on two CPU cores: the numbers show how it works,
# not which embedding is best.

# %%
from pathlib import Path
from tempfile import mkdtemp

import fope_lab

folder = Path(mkdtemp())
store = folder / "store"

# %% [markdown]
# ## The sweep file
#
# Two embeddings, two seeds. The text is the documentation that comes with Python.

# %%
(folder / "first.yaml").write_text("""
name: first
seeds: [0, 1]
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: rope
    data: {corpus: python-docs, length: 32}
    train: {tokens: 120_000, batch_tokens: 2048, learning_rate: 5e-3}
  perplexity:
    kind: perplexity
    from: pretrain
    corpus: python-docs
    lengths: [16, 32, 64, 128, 256]
    tokens: 20_000
grid:
  pretrain.embedding: [nope, {type: rope, base: 65}]
""")
sweep = fope_lab.load_sweep(folder / "first.yaml")
[stage.label for stage in sweep.stages]

# %% [markdown]
# ## The plan
#
# A plan compares the sweep with a store and starts nothing.

# %%
fope_lab.plan(sweep, store)

# %% [markdown]
# ## The run
#
# It returns the stages that failed: none.

# %%
from IPython.utils.capture import capture_output

with capture_output():  # the live view is for a terminal
    failed = fope_lab.run(sweep, store)
failed

# %% [markdown]
# A second run finds everything in the store and trains nothing.

# %%
from collections import Counter

from fope_lab.sweep.plan import action

Counter(action(state) for state in fope_lab.plan(sweep, store).states.values())

# %% [markdown]
# ## The results
#
# A frame has a row for each number, with the seed, the key of the stage and every axis.

# %%
frame = fope_lab.results(sweep, store)
frame[["metric", "x", "value", "embedding", "seed", "key"]].tail(4)

# %%
curves = frame[frame.metric == "perplexity_by_length"]
curves.pivot_table("value", index="embedding", columns="x", aggfunc=["mean"]).round(2)

# %% [markdown]
# ## The comparison
#
# It is what `fope-lab report` prints. Without `print`, a notebook shows the report's page in place,
# with its figures, even while a run is at work; `fope_lab.watch` keeps it up to date.

# %%
print(fope_lab.compare(sweep, store))

# %% [markdown]
# ## A figure
#
# The band is from the least to the greatest seed. The dotted line is the trained length.

# %%
from matplotlib.figure import Figure

figure = Figure(figsize=(6, 3.5), layout="constrained")
axes = figure.subplots()
for name, rows in curves.groupby("embedding"):
    by_length = rows.groupby("x").value.agg(["mean", "min", "max"])
    [line] = axes.plot(by_length.index, by_length["mean"], marker="o", label=name)
    axes.fill_between(
        by_length.index, by_length["min"], by_length["max"], color=line.get_color(), alpha=0.2
    )
axes.axvline(32, linestyle=":", color="grey")
axes.set_xscale("log", base=2)
axes.set(xlabel="context length, tokens", ylabel="perplexity")
axes.legend()
figure
