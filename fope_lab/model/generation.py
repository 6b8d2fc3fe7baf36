"""Text from a decoder, token by token: the most likely token, or a random one."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from fope_lab.model.cache import KeyValueCache
from fope_lab.model.decoder import Decoder

Choice = Callable[[Tensor], Tensor]
"""A function from the logits (batch, vocabulary) of the next tokens to tokens (batch,)."""


def greedy(logits: Tensor) -> Tensor:
    """The most likely tokens (batch,) for logits (batch, vocabulary)."""
    return logits.argmax(dim=-1)


def sampled(*, temperature: float = 1.0, top_p: float = 1.0, seed: int = 0) -> Choice:
    """A choice that samples from softmax(logits/temperature) within the nucleus of `top_p`.

    The nucleus is the smallest set of most likely tokens whose probabilities add up to top_p
    (Holtzman et al., arXiv 1904.09751, §3.1). Each call continues the random numbers of `seed`.
    Raises ValueError for a temperature that is not above 0, or a top_p that is not in (0, 1].
    """
    if not temperature > 0:
        raise ValueError(f"temperature: found {temperature}, needs a number above 0 (see greedy)")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p: found {top_p}, needs a number above 0 and at most 1")
    generator = torch.Generator("cpu").manual_seed(seed)

    def choose(logits: Tensor) -> Tensor:
        # On the CPU and in float64, so that every device draws the same, also rare tokens.
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
    finished: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Continue prompts (batch, length) by up to `max_new_tokens`: (batch, length + new tokens).

    A row ends with the first of its new tokens that is one of `ends`, or after which `finished`,
    given all new tokens (batch, new), is true for it (batch,); it is padded with its last token.
    Generation stops when all rows have ended. For embeddings that rotate keys again, see the limits
    of `fope_lab.model.cache.KeyValueCache`. Raises ValueError for an empty prompt.
    """
    batch, length = input_ids.shape
    if not length:
        raise ValueError("empty prompt: a model needs at least one token to continue")
    device = input_ids.device
    stops = torch.tensor(sorted(ends), dtype=input_ids.dtype, device=device)
    text = input_ids.new_empty(batch, length + max_new_tokens)
    text[:, :length] = input_ids
    ended = torch.zeros(batch, dtype=torch.bool, device=device)
    windows = [plan.window for plan in model.plans]
    cache = KeyValueCache(len(windows), room=text.shape[1], windows=windows)
    read = 0
    for end in range(length, text.shape[1]):
        hidden = model.hidden(text[:, read:end], cache=cache, last=1)
        chosen = choose(model.head(hidden[:, 0]))
        text[:, end] = chosen.to(text.dtype).where(~ended, text[:, end - 1])
        ended |= torch.isin(text[:, end], stops)
        if finished is not None:
            ended |= finished(text[:, length : end + 1])
        read = end
        if (stops.numel() or finished is not None) and bool(ended.all()):
            break
    return text[:, : read + 1] if max_new_tokens > 0 else input_ids
