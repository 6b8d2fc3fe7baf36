"""Passkey trials by reading and by generating the answers: equality of the verdicts, and times.

    python benchmarks/passkey.py [--lengths 512 …] [--trials 1000] [--scale mini] [--embedding rope]
                                 [--form english] [--device cuda] [--json FILE]

The same model with random weights answers the same prompts in four ways:

- `read`: `exact_match`, as in a sweep: prompts in batches, whose common beginning is read once;
- `plain`: `exact_match` of the same model behind an interface without a cache: in the same batches,
  one forward pass per prompt;
- `generate`: greedy generation as in YaRN's script: one prompt at a time, with a KV cache, as many
  new tokens as the key has; by this project's `generate`;
- `hugging face`: the same by the `generate` of transformers, on the exported model.

A model with random weights finds no key. Therefore every second trial asks for the tokens that the
model generates, and every fourth for these with a wrong last token, so that both verdicts and near
misses occur. All four ways must agree on every trial, or the exit code is 1.

Times are per trial. A round generates the answers of its part of the trials and reads all of them,
so that other load affects all ways; ratios are medians of the rounds' ratios (minimum – maximum).
Aims for the ratio to `generate`: above 3.2 at 512 tokens and 1.4 at 2,048 on two CPU cores, at
least 8 at up to 1,024 tokens on a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn

from fope_lab.config.atomic_files import write_atomic
from fope_lab.data.tasks.passkey import Trial, prompt_form
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.embeddings import Embedding, EmbeddingError, parse_embedding
from fope_lab.evaluation.scoring.exact_match import exact_match
from fope_lab.model import SCALES, Decoder, generate
from fope_lab.model.export.modeling import FopeLabConfig, FopeLabForCausalLM

TRAIN_LENGTH = 512
GAIN = 2.0
"""Of the random matrices: the next token depends on all that was read, and rounding on nothing."""

Answers = list[list[int]]
Generator = Callable[[Tensor, int], Tensor]
"""From a prompt (1, length) and a number of new tokens to prompt and new tokens."""


class Uncached(nn.Module):
    """A decoder behind an interface that has only its two parts, and no cache."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.model, self.head = model, model.head

    def hidden(self, input_ids: Tensor) -> Tensor:
        """Return the final hidden states of all tokens."""
        return self.model.hidden(input_ids)


def described(name: str) -> Embedding:
    """The embedding of that name, with factor 4 and a small base where it needs them."""
    for options in ({}, {"factor": 4.0}, {"factor": 4.0, "base": 129.0}):
        try:
            return parse_embedding({"type": name, **options})
        except EmbeddingError as error:
            problem = error
    raise problem


def build(scale: str, embedding: str, device: torch.device) -> Decoder:
    """A decoder of bytes whose weights are random, and larger than training starts from."""
    config = dataclasses.replace(SCALES[scale], vocab_size=ByteTokenizer().vocabulary_size)
    model = Decoder(config, described(embedding), train_length=TRAIN_LENGTH).eval()
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.layers.parameters():
            if weight.dim() == 2:
                weight.normal_(0.0, GAIN / weight.shape[1] ** 0.5, generator=random)
    return model.to(device)


def exported(model: Decoder) -> FopeLabForCausalLM:
    """The model as transformers has it after an export."""
    config = FopeLabConfig(
        model=dataclasses.asdict(model.config),
        embedding=model.embedding.canonical(),
        train_length=model.train_length,
        context_length=model.train_length,
    )
    wrapped = FopeLabForCausalLM(config)
    wrapped.decoder = model
    wrapped.eval()
    return wrapped


def generators(model: Decoder) -> Mapping[str, Generator]:
    """Return the two ways to generate, by name."""
    theirs = exported(model)

    def hugging_face(prompt: Tensor, tokens: int) -> Tensor:
        found: Tensor = theirs.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=tokens,
            pad_token_id=0,
        )
        return found

    return {
        "generate": lambda prompt, tokens: generate(model, prompt, tokens),
        "hugging face": hugging_face,
    }


def answers(way: Generator, trials: Sequence[Trial], device: torch.device) -> Answers:
    """Generate the answer of each prompt, one at a time."""
    found = []
    for trial in trials:
        size = len(trial.answer_ids)
        prompt = torch.from_numpy(trial.input_ids[None, :-size]).to(device)
        found.append(way(prompt, size)[0, -size:].tolist())
    return found


def asked_for(trials: Sequence[Trial], said: Answers) -> list[Trial]:
    """The trials, of which every other one asks for what was said, or for nearly that."""
    found = list(trials)
    for index in range(1, len(trials), 2):
        trial, answer = trials[index], said[index]
        ids = np.concatenate([trial.input_ids[: -len(answer)], answer])
        ids[-1] ^= index % 4 == 3  # another byte
        found[index] = Trial(ids, ids[-len(answer) :], trial.depth)
    return found


CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def seconds(clock: str, work: Callable[..., Any], *of: Any) -> tuple[float, Any]:
    """The time of work that ends with a result on the CPU, and the result."""
    start = CLOCKS[clock]()
    result = work(*of)
    return CLOCKS[clock]() - start, result


def measure(model: Decoder, length: int, given: argparse.Namespace) -> dict[str, Any]:
    """Measure times, ratios and verdicts at a length."""
    device = next(model.parameters()).device
    prompts = prompt_form(given.form, ByteTokenizer())
    trials = [prompts.trial(length, index) for index in range(given.trials)]
    readers = {"read": model, "plain": Uncached(model)}
    ways = generators(model)
    said: dict[str, Answers] = {name: [] for name in ways}
    times: dict[str, list[float]] = {name: [] for name in [*readers, *ways]}

    def read(name: str, questions: Sequence[Trial]) -> NDArray[np.bool_]:
        return exact_match(readers[name], questions, batch_tokens=given.batch_tokens)

    for name in readers:  # the first run of each allocates and, on CUDA, compiles
        read(name, trials[: given.batch_tokens // length + 1])
    for way in ways.values():
        answers(way, trials[:2], device)
    for part in np.array_split(np.arange(given.trials), given.rounds):
        of_part = [trials[index] for index in part]
        for name, way in ways.items():
            took, new = seconds(given.clock, answers, way, of_part, device)
            said[name] += new
            times[name].append(took / len(part))
        for name in readers:
            took, _ = seconds(given.clock, read, name, trials)
            times[name].append(took / given.trials)

    questions = asked_for(trials, said["generate"])
    verdicts = {
        **{
            name: [q.answer_ids.tolist() == one for q, one in zip(questions, found, strict=True)]
            for name, found in said.items()
        },
        **{name: read(name, questions).tolist() for name in readers},
    }
    expected = verdicts["generate"]
    return {
        "batch": max(1, given.batch_tokens // length),
        "seconds": {name: statistics.median(found) for name, found in times.items()},
        "ratios": {
            name: [of / ours for of, ours in zip(times[name], times["read"], strict=True)]
            for name in ("plain", *ways)
        },
        "right": sum(expected),
        "answers": len({tuple(one) for one in said["generate"]}),
        "different": {
            name: [
                i for i, both in enumerate(zip(found, expected, strict=True)) if len({*both}) > 1
            ]
            for name, found in verdicts.items()
        },
    }


def arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--lengths", nargs="+", type=int, default=[2**n for n in range(9, 14)])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", choices=SCALES, default="mini")
    parser.add_argument("--embedding", default="rope")
    parser.add_argument("--form", choices=("english", "symbolic"), default="english")
    parser.add_argument("--batch-tokens", type=int, default=16_384)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu where others use the machine, too"
    )
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    given = parser.parse_args()
    if given.trials < max(4, given.rounds):
        parser.error(f"--trials {given.trials}: needs at least 4, and one a round")
    return given


def main() -> int:
    """Print a line for each length; return 1 if a verdict differs, else 0."""
    given = arguments()
    torch.set_num_threads(given.threads)
    transformers.logging.set_verbosity_error()
    device = torch.device(given.device)
    cuda = device.type == "cuda"
    model = build(given.scale, given.embedding, device)
    if not all(one.keys_cacheable for one in model.position_embeddings):
        problem = "its keys depend on the length, so that no KV cache is exact"
        print(f"--embedding {given.embedding}: {problem}", file=sys.stderr)
        return 2
    name = torch.cuda.get_device_name(device) if cuda else f"CPU, {given.threads} thread(s)"
    print(f"{name}, float32, {given.clock} time, KV cache on, {given.trials} trials ({given.form})")
    print(f"{given.scale} with {given.embedding}, batches of {given.batch_tokens} tokens", end=", ")
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    print(f"{'length':>6} {'batch':>5} {'ms read':>9}  read is quicker than …")
    rows = {}
    for length in given.lengths:
        rows[length] = row = measure(model, length, given)
        ratios = ", ".join(
            f"{other} {statistics.median(found):.2f}× ({min(found):.2f} – {max(found):.2f})"
            for other, found in row["ratios"].items()
        )
        same = "equal" if not any(row["different"].values()) else f"DIFFERENT {row['different']}"
        print(
            f"{length:6} {row['batch']:5} {1000 * row['seconds']['read']:9.2f}  {ratios}; verdicts "
            f"{same}, {row['right']} of {given.trials} right, {row['answers']} answers",
            flush=True,
        )
        if given.json:  # after each length, so that an early end leaves what was measured
            content = {"device": name, "trials": given.trials, "scale": given.scale, "rows": rows}
            content |= {"embedding": given.embedding, "form": given.form}
            write_atomic(given.json, json.dumps(content, indent=1) + "\n")
    return int(any(different for row in rows.values() for different in row["different"].values()))


if __name__ == "__main__":
    sys.exit(main())
