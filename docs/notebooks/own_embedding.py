# %% [markdown]
# # An embedding of your own
#
# An embedding is a frozen dataclass: its fields are the options of a sweep file, its methods the
# maths. Here it is defined in the notebook, built, drawn and trained for a moment.
#
# What works here and what does not: defining the class registers it, so `build_embedding` and
# `Decoder` take it by name **in this process**. The workers of `fope-lab run` are other processes.
# They find embeddings in the modules of `fope_lab/embeddings/`, and not outside of the package. So
# for a sweep, put the class into a file there, as "Add an embedding" among the how-to pages shows.
#
# The example is a window: a bias that is 0 up to a distance, and falls linearly beyond it.

# %%
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from fope_lab import build_embedding
from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import RelativeBias, Shape
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SoftWindow(RelativeBias, name="soft-window", source="this notebook"):
    """The bias is −slope·max(0, |i − j| − width)."""

    width: Annotated[int, Interval(ge=0), Doc("The distance without a bias, in tokens.")] = 16
    slope: Annotated[float, Interval(gt=0), Doc("The fall for each token beyond it.")] = 0.1

    def of_distance(self, shape: Shape, tensors: Mapping[str, Tensor], distance: Tensor) -> Tensor:
        """The bias of each distance, the same for all heads."""
        bias = -self.slope * (distance - self.width).clamp(min=0)
        return bias.expand(*distance.shape[:-3], shape.num_heads, *distance.shape[-2:])


# %% [markdown]
# ## Build it, and look at it
#
# Options are checked like those of every other embedding.

# %%
spec = {"type": "soft-window", "width": 8}
embedding = build_embedding(spec, head_dim=16, num_heads=2, train_length=32)
embedding.bias(torch.tensor([20]), torch.arange(21))[0, 0]

# %%
from fope_lab.embeddings.base import EmbeddingError

try:
    build_embedding({"type": "soft-window", "widht": 8}, head_dim=16, num_heads=2, train_length=32)
except EmbeddingError as error:
    print(error)

# %% [markdown]
# ## Test it against arithmetic that is not its own

# %%
for query in (0, 5, 20):
    for key in range(query + 1):
        expected = -0.1 * max(0, query - key - 8)
        got = embedding.bias(torch.tensor([query]), torch.tensor([key]))[0, 0, 0].item()
        assert abs(got - expected) < 1e-6

# %% [markdown]
# ## Train it for a moment
#
# The model of a sweep, `Decoder`, takes it by name. Everything has the same seed and the same data.

# %%
from pydoc_data.topics import topics

from fope_lab.model import Decoder, ModelConfig

text = torch.tensor(list("\n".join(topics.values()).encode()))
train, held_out = text[:-20_000], text[-20_000:]
config = ModelConfig(num_layers=1, num_heads=2, head_dim=16, vocab_size=272)


def loss_of(model: Decoder, rows: Tensor) -> Tensor:
    """The mean loss in nats of rows (count, length + 1)."""
    logits = model(rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def train_model(spec: object, steps: int = 150, length: int = 32) -> Decoder:
    """A model that is trained on random windows of the text."""
    torch.manual_seed(0)
    model = Decoder(config, spec, train_length=length).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    windows = train.unfold(0, length + 1, 1)
    for _ in range(steps):
        loss = loss_of(model, windows[torch.randint(len(windows), (32,))])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


# %%
import pandas

rows = {}
with torch.no_grad():
    for spec in ("nope", "alibi", {"type": "soft-window", "width": 8}):
        with torch.enable_grad():
            model = train_model(spec)
        rows[str(spec)] = {
            length: loss_of(model, held_out.unfold(0, length + 1, length + 1)).exp().item()
            for length in (16, 32, 64, 128)
        }
table = pandas.DataFrame(rows).T.round(2)
table.columns.name = "perplexity at"
table
