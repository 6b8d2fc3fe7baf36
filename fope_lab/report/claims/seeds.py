"""Which stages a sweep with a rule for its seeds needs, which of its results count, and the
verdicts that follow.

All of it follows from the results alone. So a run that is killed and started again decides as it
would have, and a later run with a larger `at_most` goes on where this one ended.

*Until claims are decided.* A look is a test with the seeds 0 … n − 1 of all models that the claim
compares, n = first, first + 1, … The first look that decides is the verdict, whatever seeds the
store has beyond it.

*Until enough trainings have stopped early.* For each training, seeds are added until the wanted
number of them have stopped early, or the last seed is done. Means are then over the first that did,
or, where none did, over as many first seeds (Huang et al., arXiv 2410.02140, in their released
logs). What comes after a training runs once it is known that the training counts. Of everything
that does not come after such a training, the first seeds run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, takewhile

from fope_lab.report.claims.judge import (
    Judgement,
    StageSeconds,
    Verdict,
    VerdictWord,
    judge,
    read_judgements,
)
from fope_lab.report.claims.samples import Results
from fope_lab.report.results.cells import StageResult, by_key, canonical
from fope_lab.statistics.decision import STUDENT_T, SeedTest
from fope_lab.statistics.sequential import SequentialT
from fope_lab.store.state import StageState, Status
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.sweep_file import SeedRule, StoppedEarly

NOT_YET = "its seed is added if the rule of `seeds` asks for it"
NOT_ASKED = "the rule of `seeds` does not ask for its seed"
STOPPED_EARLY = "stopped_early"
"""What a training records of itself: whether it ended before it had read all its tokens."""
NOW, LATER, NEVER = range(3)


@dataclass(frozen=True)
class Needs:
    """The stages that are needed now, by their keys, and those that may be needed later.
    `uncounted` are stages whose results belong in no mean: the rule counts other seeds."""

    now: frozenset[str]
    later: frozenset[str] = frozenset()
    uncounted: frozenset[str] = frozenset()


def seed_needs(sweep: Sweep) -> Callable[[Results], Needs]:
    """Return the function from results to the stages of a sweep that are needed."""
    rule = sweep.seed_rule
    if rule is None:
        all_of_them = Needs(frozenset(stage.key for stage in sweep.stages))
        return lambda results: all_of_them
    if isinstance(rule.until, StoppedEarly):
        return partial(_needs_of_stops, sweep, rule, tuple(_first_trainings(sweep)))
    return partial(_needs_of_claims, sweep, rule, _looks_of(sweep, rule, {}))


def with_needs(states: Mapping[str, StageState], needs: Needs) -> dict[str, StageState]:
    """Return the states, in which what is not needed by now says so, and what is needed waits."""

    def with_need(key: str, state: StageState) -> StageState:
        if state.status in (Status.DONE, Status.RUNNING):
            return state
        if key in needs.now:
            waits = state.is_unneeded
            return replace(state, status=Status.WAITING, reason="") if waits else state
        if key in needs.later:
            return replace(state, status=Status.IF_NEEDED, reason=NOT_YET)
        return replace(state, status=Status.NOT_NEEDED, reason=NOT_ASKED)

    return {key: with_need(key, state) for key, state in states.items()}


def _needs(
    now: Iterable[str],
    later: Iterable[str],
    stages: Sequence[Stage],
    uncounted: frozenset[str] = frozenset(),
) -> Needs:
    """Add the ancestors of the needed stages, and stages with neither seed nor child."""
    parents = {key for stage in stages for key in stage.parents.values()}
    whole = {stage.key for stage in stages if stage.seed is None and stage.key not in parents}
    needed = _with_ancestors({*now, *whole}, stages)
    return Needs(needed, _with_ancestors(later, stages) - needed, uncounted)


def _with_ancestors(keys: Iterable[str], stages: Sequence[Stage]) -> frozenset[str]:
    found = set(keys)
    for stage in reversed(stages):
        if stage.key in found:
            found.update(stage.parents.values())
    return frozenset(found)


# Until claims are decided


@dataclass(frozen=True)
class ClaimSeeds:
    """The seeds 0 … `asked` − 1 that a claim asks for, after a look at `looked` seeds.

    `looked` is 0 before the first look. The claim may ask for more, up to `may_ask`: not once it is
    decided, or all its seeds are done.
    """

    looked: int
    asked: int
    may_ask: int


@dataclass
class ClaimLooks:
    """The looks at a claim, from `first` seeds on.

    It is decided at a p below α divided by `verdicts`, the number of verdicts that its file
    corrects for: Holm's correction decides whatever Bonferroni's does.
    """

    judgement: Judgement
    first: int
    verdicts: int = 1
    _words: dict[int, VerdictWord] = field(default_factory=dict)

    def seeds(self, results: Results) -> ClaimSeeds:
        """Look at the values that there are, until the claim is decided.

        A seed without a value, such as one whose stage failed, is asked for and none beyond it. No
        seed is added where a value can't be compared, since none would decide the claim.
        """
        combination = self.judgement.combination
        if combination.is_exact:
            return ClaimSeeds(0, 0, 0)

        def has_values(seed: int) -> bool:
            points = ((one.stages[seed].key, one.point) for one in combination.numbers)
            return all(results[key].value_at(point) is not None for key, point in points)

        common = set.intersection(*(set(number.stages) for number in combination.numbers))
        most = sum(1 for _ in takewhile(common.__contains__, count()))
        complete = sum(1 for _ in takewhile(has_values, range(most)))
        self._words = {n: word for n, word in self._words.items() if n <= complete}
        for n in range(self.first, complete + 1):
            if n not in self._words:
                look = self.at(n, results)
                p = None if look.p is None else min(1.0, self.verdicts * look.p)
                self._words[n] = look.word(p)
            if self._words[n] != "undecided":
                return ClaimSeeds(n, n, n)
        looked = complete if complete >= self.first else 0
        if complete == most or (looked and self.at(looked, results).obstacle):
            return ClaimSeeds(looked, complete, complete)
        return ClaimSeeds(looked, max(complete + 1, self.first), most)

    def at(self, n: int, results: Results) -> Judgement:
        """Return the judgement over the first `n` seeds alone, as far as they have values."""
        over = self.judgement.over(lambda stage: stage.seed is None or stage.seed < n)
        return replace(over, results=results)


def _looks_of(sweep: Sweep, rule: SeedRule, results: Results) -> list[ClaimLooks]:
    test = SequentialT(rule.first)
    judgements = read_judgements(sweep.report, sweep.by_section, results, test)
    tested = sum(not one.combination.is_exact for one in judgements)
    verdicts = 1 if sweep.report.correction == "none" else max(tested, 1)
    return [ClaimLooks(one, rule.first, verdicts) for one in judgements]


def _needs_of_claims(
    sweep: Sweep, rule: SeedRule, claims: Sequence[ClaimLooks], results: Results
) -> Needs:
    """The first seeds of everything, and what undecided claims compare under more."""
    now = {s.key for s in sweep.stages if s.seed is not None and s.seed < rule.first}
    later: set[str] = set()
    for claim in claims:
        seeds = claim.seeds(results)
        for number in claim.judgement.combination.numbers:
            for seed, stage in number.stages.items():
                if seed is not None and seed < seeds.may_ask:
                    (now if seed < seeds.asked else later).add(stage.key)
    return _needs(now, later, sweep.stages)


# Until enough trainings have stopped early


@dataclass(frozen=True)
class CountedSeeds:
    """The seeds 0 … `asked` − 1 of a training are needed, and those up to `may_ask` may be.

    `ran` are the seeds that are done, and `stopped` those that stopped early. `counted` are known
    to count in means, and `out` not to.
    """

    training: Stage
    asked: int
    may_ask: int
    ran: tuple[int, ...]
    stopped: tuple[int, ...]
    counted: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def settled(self) -> bool:
        """Whether no more seeds may be added."""
        return self.asked == self.may_ask


def follow_stops(
    training: Sequence[StageResult], first: int, at_most: int, wanted: int
) -> CountedSeeds:
    """Return which seeds of a training are needed and which count, given what is done.

    `training` has its results from seed 0 on. A training that is not done, for whatever reason, may
    still stop early, and no other is started in its place.
    """
    seeds = range(min(at_most, len(training)))
    done = [seed for seed in seeds if training[seed].state.is_done]
    stopped = [s for s in done if training[s].record.recorded.get(STOPPED_EARLY) is True]
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
    which = (tuple(one) for one in (done, found, counted, out))
    return CountedSeeds(training[0].stage, asked, may_ask, *which)


def _follow(
    training: Sequence[Stage], rule: SeedRule, results: Mapping[str, StageResult]
) -> CountedSeeds:
    assert isinstance(rule.until, StoppedEarly)
    found = [results[stage.key] for stage in training]
    return follow_stops(found, rule.always, rule.at_most, rule.until.stopped_early)


def _needs_of_stops(
    sweep: Sweep, rule: SeedRule, trainings: Sequence[Sequence[Stage]], results: Results
) -> Needs:
    """The trainings that are asked for, and what descends from those that count."""
    own: dict[str, int] = {}
    below: dict[str, int] = {}  # of the stages that start from it
    for training in trainings:
        seeds = _follow(training, rule, results)
        for seed, stage in enumerate(training):
            asks = LATER if seed < seeds.may_ask else NEVER
            trains = NOW if seed < seeds.asked else asks
            unsure = LATER if results[stage.key].state.is_done else NOW
            counts = NEVER if seed in seeds.out else NOW if seed in seeds.counted else unsure
            own[stage.key] = min(trains, own.get(stage.key, NEVER))
            below[stage.key] = min(max(trains, counts), below.get(stage.key, NEVER))
    for stage in sweep.stages:  # parents come before their children
        inherited = [below[key] for key in stage.parents.values() if key in below]
        if inherited and stage.key not in own:
            own[stage.key] = below[stage.key] = max(inherited)
    first = {s.key for s in sweep.stages if s.seed is not None and s.seed < rule.always}
    now = {key for key, level in own.items() if level == NOW} | (first - own.keys())
    later = [key for key, level in own.items() if level == LATER]
    uncounted = frozenset(key for key, level in below.items() if level == NEVER)
    return _needs(now, later, sweep.stages, uncounted)


def _first_trainings(sweep: Sweep) -> Iterator[tuple[Stage, ...]]:
    """The first trainings of a chain that may stop early, each under seeds 0, 1, 2 …"""
    stages = {stage.key: stage for stage in sweep.stages}
    named = {s.key for found in sweep.by_section.values() for s in found if s.may_stop_early}
    later: set[str] = set()
    for stage in sweep.stages:  # parents come before their children
        if any(key in named or key in later for key in stage.parents.values()):
            later.add(stage.key)
    cells: dict[str, dict[int, Stage]] = {}
    for section, found in sweep.by_section.items():
        for stage in found:
            if stage.key in named - later and stage.seed is not None:
                cell = canonical([section, stage.axes])
                cells.setdefault(cell, {}).setdefault(stage.seed, stages[stage.key])
    for seeds in cells.values():
        if sorted(seeds) == list(range(len(seeds))):
            yield tuple(seeds[seed] for seed in range(len(seeds)))


# What counts


@dataclass(frozen=True)
class CountedResults:
    """Every stage of a sweep, in the state that the rule for its seeds gives it, and the `counted`
    ones: without those that are not needed, and those whose seed the rule does not count.
    """

    stages: tuple[StageResult, ...]
    counted: tuple[StageResult, ...]


def counted_results(sweep: Sweep, results: tuple[StageResult, ...]) -> CountedResults:
    """Find out which of a sweep's stages count."""
    if sweep.seed_rule is None:
        return CountedResults(results, results)
    needs = seed_needs(sweep)(by_key(results))
    states = with_needs({result.stage.key: result.state for result in results}, needs)
    stages = tuple(replace(result, state=states[result.stage.key]) for result in results)
    counted = tuple(
        result
        for result in stages
        if not result.state.is_unneeded and result.stage.key not in needs.uncounted
    )
    return CountedResults(stages, counted)


def counted_seeds(sweep: Sweep, stages: Sequence[StageResult]) -> tuple[CountedSeeds, ...]:
    """Return which seeds of each training count, where they are added until some stop early."""
    rule = sweep.seed_rule
    if rule is None or not isinstance(rule.until, StoppedEarly):
        return ()
    results = by_key(stages)
    return tuple(_follow(training, rule, results) for training in _first_trainings(sweep))


def seed_test_of(sweep: Sweep) -> SeedTest:
    """Return the test over seeds that the rule for the seeds of a sweep asks for."""
    rule = sweep.seed_rule
    if rule is None or isinstance(rule.until, StoppedEarly):
        return STUDENT_T
    return SequentialT(rule.first)


def judge_sweep(
    sweep: Sweep, results: CountedResults, seconds: StageSeconds | None = None
) -> tuple[Verdict, ...]:
    """Return the verdicts on a sweep's claims, by the test that the rule for its seeds asks for."""
    rule, of_all = sweep.seed_rule, by_key(results.stages)
    if rule is not None and not isinstance(rule.until, StoppedEarly):
        return _judge_by_looks(sweep, rule, of_all, seconds)
    counted = by_key(results.counted)
    judgements = read_judgements(sweep.report, sweep.by_section, of_all, STUDENT_T)
    over_counted = [one.over(lambda stage: stage.key in counted) for one in judgements]
    return judge(over_counted, sweep.report, seconds)


def _judge_by_looks(
    sweep: Sweep, rule: SeedRule, results: Results, seconds: StageSeconds | None
) -> tuple[Verdict, ...]:
    claims = _looks_of(sweep, rule, results)
    found = [claim.seeds(results) for claim in claims]
    judgements = [
        claim.judgement
        if claim.judgement.combination.is_exact
        else claim.at(seeds.looked or rule.first, results)
        for claim, seeds in zip(claims, found, strict=True)
    ]
    return tuple(
        verdict
        if verdict.is_exact
        else replace(
            verdict,
            looks=seeds.looked and seeds.looked - rule.first + 1,
            added=tuple(range(rule.first, seeds.asked)),
        )
        for verdict, seeds in zip(judge(judgements, sweep.report, seconds), found, strict=True)
    )
