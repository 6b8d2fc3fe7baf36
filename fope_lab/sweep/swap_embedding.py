"""The stages that give models another embedding without training, for evaluations that ask so.

No sweep file names them. Each is made once, however many evaluations need it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fope_lab.config.cache import Cache
from fope_lab.data.roles import MODEL
from fope_lab.embeddings import Embedding
from fope_lab.stages import SwapEmbedding
from fope_lab.sweep.cost import cost_of
from fope_lab.sweep.graph import make_stage
from fope_lab.sweep.model_spec import learned_parameters_of, model_spec_of
from fope_lab.sweep.parents import Parent


def with_swapped_embedding(
    parent: Parent, embedding: Embedding, given: Any, cache: Cache
) -> Parent:
    """Return what an evaluation starts from that wants another embedding in its model.

    `embedding` is what the file calls `given`. It is the parent itself if that has this embedding
    already. Raises ConfigError, at the path ("embedding",), if the model can't have it.
    """
    before = parent.model_spec
    assert before is not None, "only a model has an embedding"
    if before.embedding == embedding:
        return parent
    stage = parent.stage
    spec = SwapEmbedding(
        from_=stage.section if stage else str(parent.external and parent.external.path),
        embedding=embedding,
        seed=(stage.seed if stage else None) or 0,
    )
    model_spec = model_spec_of(spec, {"embedding": given}, before, cache)
    origin = stage.label if stage else Path(spec.from_).name
    swapped = make_stage(
        spec,
        section=spec.kind,
        label=f"{spec.kind}[{model_spec.embedding_label},{origin}]",
        axes=stage.axes if stage else None,
        seed=stage.seed if stage else None,
        parents={MODEL: stage.key} if stage else {},
        external=parent.external,
        model_spec=model_spec,
        cost=cost_of(spec, model_spec.model, learned_parameters_of(model_spec, cache)),
    )
    return Parent((swapped.key, parent.memo_key), swapped, ancestors=(*parent.ancestors, swapped))
