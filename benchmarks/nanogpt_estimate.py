"""How far nanoGPT's estimate of a validation loss scatters about the loss of the whole part.

    python benchmarks/nanogpt_estimate.py FILE --text TEXT --store DIR

FILE is a sweep of sweeps/nanogpt that is finished in the store; TEXT is its text. nanoGPT publishes
the mean over 20 batches of 12 windows at random places of the held-out tenth (its train.py with
eval_iters = 20, in the setting for a CPU). A sweep here reads all of that tenth once. This draws
many of nanoGPT's estimates for each model of the sweep with learned positions.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import torch
from torch.nn import functional

from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.model.checkpoint import load_model
from fope_lab.store.folder import find_checkpoint
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep

BATCHES, ROWS, LENGTH = 20, 12, 64
ESTIMATES = 50


@torch.inference_mode()
def main() -> None:
    """Print the scatter of each model's estimates."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sweep", metavar="FILE", help="the sweep, such as shakespeare-cpu.yaml")
    parser.add_argument("--text", required=True, metavar="TEXT", help="the text of the sweep")
    parser.add_argument("--store", required=True, metavar="DIR", help="the store of its runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = Path(options.text).read_text(encoding="utf-8")
    held_out = text[int(0.9 * len(text)) :]
    store = Store.existing(options.store)
    print("seed  mean of the estimates  standard deviation of one estimate", flush=True)
    for stage in load_sweep(options.sweep).stages:
        if stage.model_spec is None or stage.model_spec.embedding.name != "learned":
            continue
        checkpoint = find_checkpoint(store.folder(stage.kind, stage.key).path)
        tokenizer = load_tokenizer(str(checkpoint / "tokenizer" / "tokenizer.json"))
        ids = torch.tensor(tokenizer.encode(held_out))
        model = load_model(checkpoint)
        generator = torch.Generator().manual_seed(stage.seed or 0)
        estimates = []
        for _ in range(ESTIMATES):
            places = torch.randint(len(ids) - LENGTH, (BATCHES * ROWS,), generator=generator)
            windows = torch.stack([ids[place : place + LENGTH + 1] for place in places])
            logits = model(windows[:, :-1]).logits
            loss = functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
            estimates.append(loss.item())
        mean, deviation = statistics.fmean(estimates), statistics.stdev(estimates)
        print(f"{stage.seed!s:>4}  {mean:21.3f}  {deviation:34.3f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
