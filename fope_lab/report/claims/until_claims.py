"""A sweep that adds seeds to what its claims compare until they are decided.

A look is a test with the seeds 0 … n − 1 of all models that the claim compares, n = first,
first + 1, … The first look that decides is the verdict, whatever seeds the store has beyond it. So
the verdict depends on the values alone, and not on when a run was started or interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count, takewhile

from fope_lab.report.claims.judge import (
    Judgement,
    StageSeconds,
    Verdict,
    VerdictWord,
    judge,
    read_judgements,
)
from fope_lab.report.claims.needs import Needs, needs_of
from fope_lab.report.claims.samples import Results
from fope_lab.statistics.sequential import SequentialT
from fope_lab.sweep.claims.compare import Combination
from fope_lab.sweep.graph import Sweep
from fope_lab.sweep.seed_rule import SeedRule


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

    The claim is decided at a p-value below α divided by `verdicts`, the number of verdicts that its
    file corrects for: Holm's correction decides whatever Bonferroni's does.
    """

    judgement: Judgement
    first: int
    verdicts: int = 1
    _words: dict[int, VerdictWord] = field(default_factory=dict)

    @property
    def combination(self) -> Combination:
        """What the claim compares, with the stages of all seeds."""
        return self.judgement.combination

    def seeds(self, results: Results) -> ClaimSeeds:
        """Look at the values that there are, until the claim is decided.

        A seed without a value, such as one whose stage failed, is asked for and none beyond it. No
        seed is added where a value can't be compared, since none would decide the claim.
        """
        if self.combination.is_exact:
            return ClaimSeeds(0, 0, 0)
        common = set.intersection(*(set(member) for member in self.combination.members))
        most = sum(1 for _ in takewhile(lambda seed: seed in common, count()))
        complete = sum(
            1 for _ in takewhile(lambda seed: self._is_complete(seed, results), range(most))
        )
        self._words = {n: word for n, word in self._words.items() if n <= complete}
        for n in range(self.first, complete + 1):
            if n not in self._words:
                self._words[n] = self._word(self.at(n, results))
            if self._words[n] != "undecided":
                return ClaimSeeds(n, n, n)
        looked = complete if complete >= self.first else 0
        if complete == most or (looked and self.at(looked, results).obstacle):
            return ClaimSeeds(looked, complete, complete)
        return ClaimSeeds(looked, max(complete + 1, self.first), most)

    def at(self, n: int, results: Results) -> Judgement:
        """Return the judgement over the first `n` seeds alone, as far as they have values."""
        return replace(
            self.judgement.over(lambda stage: stage.seed is None or stage.seed < n), results=results
        )

    def _word(self, look: Judgement) -> VerdictWord:
        return look.word(None if look.p is None else min(1.0, self.verdicts * look.p))

    def _is_complete(self, seed: int, results: Results) -> bool:
        """Whether every compared number has a value under the seed."""
        return all(
            results[number.stages[seed].key].value_at(number.point) is not None
            for number in self.combination.numbers
        )


def looks_of(sweep: Sweep, rule: SeedRule, results: Results) -> list[ClaimLooks]:
    """Return the claims of a sweep, in its order, each for every combination of its open axes."""
    test = SequentialT(rule.first)
    judgements = read_judgements(sweep.report, sweep.by_section, results, test)
    tested = sum(not one.combination.is_exact for one in judgements)
    verdicts = 1 if sweep.report.correction == "none" else max(tested, 1)
    return [ClaimLooks(one, rule.first, verdicts) for one in judgements]


class ClaimNeeds:
    """What a sweep needs whose claims have seeds added until they are decided."""

    def __init__(self, sweep: Sweep, rule: SeedRule) -> None:
        self._stages, self._first = sweep.stages, rule.first
        self._claims = looks_of(sweep, rule, {})

    def __call__(self, results: Results) -> Needs:
        """Return the first seeds of everything, and what undecided claims compare under more."""
        now = {s.key for s in self._stages if s.seed is not None and s.seed < self._first}
        later: set[str] = set()
        for claim in self._claims:
            seeds = claim.seeds(results)
            for member in claim.combination.members:
                for seed, stage in member.items():
                    if seed is not None and seed < seeds.may_ask:
                        (now if seed < seeds.asked else later).add(stage.key)
        return needs_of(now, later, self._stages)


def judge_by_looks(
    sweep: Sweep, rule: SeedRule, results: Results, seconds: StageSeconds | None = None
) -> tuple[Verdict, ...]:
    """Return the verdicts of a sweep whose claims have seeds added until they are decided."""
    claims = looks_of(sweep, rule, results)
    found = [claim.seeds(results) for claim in claims]
    judgements = [
        claim.judgement
        if claim.combination.is_exact
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
