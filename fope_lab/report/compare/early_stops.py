"""A sweep that adds seeds to its trainings until enough of them have stopped early.

For each training with all its seeds, seeds are added until `wanted` of them have stopped early, or
the last seed is done. Means are then over the first `wanted` that did, or, where none did, over the
first `wanted` seeds (Huang et al., arXiv 2410.02140, in their released logs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fope_lab.report.results.stage_results import StageResult

STOPPED_EARLY = "stopped_early"
"""What a training records of itself: whether it ended before it had read all its tokens."""


@dataclass(frozen=True)
class TrainingSeeds:
    """The seeds 0 … `asked` − 1 of a training are needed, and those up to `may_ask` may be.

    `stopped` are the seeds that have stopped early so far. `counted` are those that are known to
    count in means, and `out` those that are known not to.
    """

    asked: int
    may_ask: int
    stopped: tuple[int, ...]
    counted: tuple[int, ...]
    out: tuple[int, ...]


def follow_stops(
    training: Sequence[StageResult], first: int, at_most: int, wanted: int
) -> TrainingSeeds:
    """Which seeds of a training are needed and which count, by what is done of them.

    `training` has its result under each seed, from seed 0 on. A training that is not done, for
    whatever reason, may still stop early, and no other is started in its place.
    """
    seeds = range(min(at_most, len(training)))
    done = [seed for seed in seeds if training[seed].state.is_done]
    stopped = [seed for seed in done if _has_stopped_early(training[seed])]
    ran_out = {seed for seed in done if seed not in stopped}
    asked = min(first, len(seeds))
    while asked < len(seeds) and asked - sum(seed < asked for seed in ran_out) < wanted:
        asked += 1
    found = [seed for seed in stopped if seed < asked]
    may_ask = asked if len(found) >= wanted else len(seeds)
    if len(done) == len(seeds):
        counted = found[:wanted] or list(seeds[:wanted])
    else:  # it counts for sure if fewer than the wanted number can have stopped before it
        counted = [s for s in found if s - sum(other < s for other in ran_out) < wanted]
    # If any stops early, those that do not are out; so are all others once enough are in.
    full = len(counted) == wanted or len(done) == len(seeds)
    out = [
        s for s in seeds if s not in counted and (full or s >= may_ask or (found and s in ran_out))
    ]
    return TrainingSeeds(asked, may_ask, tuple(found), tuple(counted), tuple(out))


def _has_stopped_early(result: StageResult) -> bool:
    return result.record.recorded.get(STOPPED_EARLY) is True
