"""Two small sweeps in one run on a real Ray and a real MLflow database, and what it leaves.

The second has CONTRIBUTING's worked examples as plug-ins.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worked_examples import EXAMPLES, FILES, ROOT, python

from fope_lab.store.root import Store

WHOLE = """
name: whole
description: A chain of stages, and one that fails.
seeds: [0, 1]
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: rope
    data:
      length: 32
      mix: [{corpus: python-docs, weight: 0.5}, {task: passkey, weight: 0.5}]
    train: {tokens: 5120, batch_tokens: 512, learning_rate: 1e-3, checkpoint_every: 5}
  extend:
    kind: extend
    from: pretrain
    embedding: {type: yarn, factor: 2}
    data: {files: texts/*.txt, length: 64, documents: within}
    train: {tokens: 2560, batch_tokens: 512, learning_rate: 1e-3}
  perplexity: {kind: perplexity, from: extend, corpus: python-docs, lengths: [16, 32, 64],
               tokens: 2048, batch_tokens: 256}
  passkey: {kind: passkey, from: pretrain, form: symbolic, lengths: [32, 64], trials: 20}
  too-long: {kind: perplexity, from: pretrain, corpus: python-docs, lengths: [32, 8_000_000]}
"""
HEADS = 2
ADDED = f"""
name: added
plugins: [./gaussian.py, ./abf.py, ./induction.py, ./cycles.py]
stages:
  pretrain:
    kind: pretrain
    model: {{num_layers: 1, num_heads: {HEADS}, head_dim: 16, intermediate_size: 64}}
    embedding: rope
    data: {{corpus: python-docs, length: 32}}
    train: {{tokens: 2560, batch_tokens: 512, learning_rate: 1e-2}}
  induction: {{kind: induction, from: pretrain, lengths: [32, 64], count: 5}}
  cycles: {{kind: analysis, analysis: {{type: cycles, head_dim: 16, length: 64}}}}
grid:
  pretrain.embedding:
    - {{type: gaussian, width: 8}}
    - {{type: rotary, transforms: [{{type: abf, factor: 4}}]}}
report:
  claims: ["induction@64 where pretrain.embedding=gaussian: <= 1"]
"""


@dataclass(frozen=True)
class RealRun:
    """What the run left in its folder."""

    folder: Path
    code: int
    output: str

    @property
    def whole(self) -> Path:
        """The file of the first sweep."""
        return self.folder / "whole.yaml"

    @property
    def store(self) -> Store:
        return Store(self.folder / "store")

    @property
    def in_store(self) -> list[str]:
        return ["--store", str(self.store.root)]

    def planned(self) -> list[dict[str, Any]]:
        """The stages in the plan of the second sweep now, from a process that has its plug-ins."""
        arguments = ("plan", "added.yaml", *self.in_store, "--json")
        printed = python("fope_lab.cli", *arguments, checkout=ROOT, folder=self.folder)
        return list(json.loads(printed)["stages"])


def run_in(folder: Path) -> RealRun:
    """Write the sweep files with what they need into a folder, and run them there."""
    sweeps = {"whole.yaml": WHOLE, "added.yaml": ADDED}
    examples = {Path(source).name: FILES[source] for source, _ in EXAMPLES.values()}
    text = "\n\n".join(f"Text {i} of all." for i in range(800))
    files = {**sweeps, **examples, "texts/one.txt": text}
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "fope_lab.cli", "run", *sweeps, "--store", "store"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
        check=False,
    )
    return RealRun(folder, done.returncode, done.stdout + done.stderr)
