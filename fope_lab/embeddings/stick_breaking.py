"""Stick-breaking attention: each token takes its share of what the tokens after it have left.

Tan et al., "Scaling Stick-Breaking Attention", arXiv 2410.17980, Eq. 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from fope_lab.config.annotations import Doc
from fope_lab.embeddings.base import Embedding, Named, Shape

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.embeddings.scores import Places, Scores


@dataclass(frozen=True, kw_only=True)
class StickBreaking(Embedding, name="stick-breaking", source="Tan et al., arXiv 2410.17980, Eq. 2"):
    """The weight β_ij · Π (1 − β_ik) over the keys k between j and i, with β = σ(logit). What no
    token takes is lost, so that weights sum to 1 at most."""

    attend_current: Annotated[
        bool, Doc("Whether a token attends to itself; in the released code it does not.")
    ] = False

    def scores(self, shape: Shape, tensors: Named, q: Tensor, kept: Named, at: Places) -> Scores:
        return replace(super().scores(shape, tensors, q, kept, at), weights=self._weights)

    def _weights(self, scores: Scores, logits: Tensor, hidden: Tensor, queries: slice) -> Tensor:
        import torch
        import torch.nn.functional as F  # noqa: N812

        if not self.attend_current:  # the last keys are the queries' own
            count, keys = logits.shape[-2:]
            own = torch.ones(count, keys, dtype=torch.bool, device=logits.device)
            hidden = hidden | own.triu(keys - count)
        left = F.logsigmoid(-logits).masked_fill(hidden, 0)
        after = left.flip(-1).cumsum(dim=-1).flip(-1) - left
        return (F.logsigmoid(logits) + after).exp().masked_fill(hidden, 0)
