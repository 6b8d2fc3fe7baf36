"""Text from a decoder, token by token: the likeliest each time, or one drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from fope_lab.model.cache import Cache
from fope_lab.model.decoder import Decoder

Choice = Callable[[Tensor], Tensor]
"""From the logits (batch, vocabulary) of the next tokens to tokens (batch,)."""


def greedy(logits: Tensor) -> Tensor:
    """The likeliest token."""
    return logits.argmax(dim=-1)


def sampled(*, temperature: float = 1.0, top_p: float = 1.0, seed: int = 0) -> Choice:
    """Tokens drawn from softmax(logits/temperature), of which only the nucleus counts: the fewest
    likeliest tokens whose probabilities add up to `top_p` (Holtzman et al., arXiv 1904.09751,
    §3.1).

    `seed` begins a sequence of draws that goes on with each call. Raises ValueError for a
    temperature that is not above 0 or a top_p not in (0, 1].
    """
    if not temperature > 0:
        raise ValueError(f"temperature: found {temperature}, needs a number above 0 (see greedy)")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p: found {top_p}, needs a number above 0 and at most 1")
    generator = torch.Generator("cpu").manual_seed(seed)

    def choose(logits: Tensor) -> Tensor:
        # On the CPU in float64: every device draws the same, and small probabilities count.
        chances = (logits.double().cpu() / temperature).softmax(dim=-1)
        chances, tokens = chances.sort(dim=-1, descending=True, stable=True)
        likelier = chances.cumsum(dim=-1) - chances
        chances = chances.masked_fill(likelier >= top_p, 0.0)
        drawn = torch.multinomial(chances, 1, generator=generator)
        return tokens.gather(-1, drawn)[:, 0].to(logits.device)

    return choose


@torch.no_grad()
def generate(
    model: Decoder,
    input_ids: Tensor,
    max_new_tokens: int,
    *,
    choose: Choice = greedy,
    ends: Collection[int] = (),
) -> Tensor:
    """Prompts (batch, length), all of one length, and what follows: (batch, length + new tokens).

    A row that has one of `ends` among its new tokens is at its end, and is filled up with that;
    nothing more is generated once all rows are. The cache holds for embeddings what
    `fope_lab.model.cache.Cache` says. Raises ValueError for an empty prompt.
    """
    batch, length = input_ids.shape
    if not length:
        raise ValueError("an empty prompt: a model continues text, and needs a token to begin with")
    device = input_ids.device
    stops = torch.tensor(sorted(ends), dtype=input_ids.dtype, device=device)
    text = input_ids.new_empty(batch, length + max_new_tokens)
    text[:, :length] = input_ids
    ended = torch.zeros(batch, dtype=torch.bool, device=device)
    cache = Cache(model.config.num_layers, room=text.shape[1])
    read = 0
    for end in range(length, text.shape[1]):
        hidden = model.hidden(text[:, read:end], cache=cache, last=1)
        chosen = choose(model.head(hidden[:, 0]))
        text[:, end] = chosen.to(text.dtype).where(~ended, text[:, end - 1])
        ended |= torch.isin(text[:, end], stops)
        read = end
        if stops.numel() and bool(ended.all()):
            break
    return text[:, : read + 1] if max_new_tokens > 0 else input_ids
