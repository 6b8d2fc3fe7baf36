"""T5's buckets against transformers, which has them from the authors."""

from __future__ import annotations

import torch
from transformers.models.t5.modeling_t5 import T5Attention

from fope_lab.embeddings import build_embedding


def test_each_head_and_bucket_has_its_number() -> None:
    embedding = build_embedding("t5", head_dim=16, num_heads=4, train_length=64)
    with torch.no_grad():
        embedding.by_bucket.copy_(torch.randn(32, 4))
    query, key = torch.tensor([3000]), torch.arange(3001)
    buckets = T5Attention._relative_position_bucket(key - query, bidirectional=False)
    expected = embedding.by_bucket[buckets].T[:, None]
    assert torch.equal(embedding.bias(query, key), expected)
