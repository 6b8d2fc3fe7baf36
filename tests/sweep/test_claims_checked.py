"""Claims, tables and figures against their sweep: every error with its line, and what is meant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sweep_files import PRETRAIN_LINE, load, told, write

from fope_lab.stages.labels import label
from fope_lab.sweep import load_sweep
from fope_lab.sweep.claims.compare import Comparison, compare
from fope_lab.sweep.claims.grammar import parse_claim
from fope_lab.sweep.claims.lookup import Catalogue

SWEEP = f"""name: checked
seeds: [3, 4]
stages:
  pretrain: {PRETRAIN_LINE}
  perplexity: {{kind: perplexity, from: pretrain, corpus: c4, over: python-docs, lengths: [32, 64]}}
  books: {{kind: perplexity, from: pretrain, corpus: python-docs, lengths: [32, 128]}}
  passkey: {{kind: passkey, from: pretrain, lengths: [32, 64, 128], form: symbolic}}
  needle: {{kind: needle, from: pretrain, lengths: [32, 64], form: symbolic}}
grid:
  pretrain.embedding: [nope, rope, {{type: fope, base: 129}}, {{type: fope, base: 99, sigma: 0.2}}]
  pretrain.train.learning_rate: [1e-3, 2e-3]
  passkey.trials: [10, 20]
"""
REPORT = 13
"""The line of the report section, which stands behind the rest."""


def messages(folder: Path, *claims: str, part: str = "claims") -> list[str]:
    """What is said of each, the first of them in line REPORT + 2."""
    listed = "".join(f"    - '{claim}'\n" for claim in claims)
    found = told(folder, f"{SWEEP}report:\n  {part}:\n{listed}")
    for i, text in enumerate(found):
        assert text.startswith(f"{REPORT + 2 + i} report.{part}[{i}]: ")
    return [text.partition(": ")[2] for text in found]


def found(folder: Path, claim: str, content: str = SWEEP) -> Comparison:
    return compare(parse_claim(claim), Catalogue(load(folder, content).by_section))


def members(comparison: Comparison, axis: str) -> list[tuple[dict[str, str], list[str]]]:
    """For each combination its axes and, for each term, its value on an axis."""
    result = []
    for one in comparison.combinations:
        labels = []
        for seeds in (number.stages for number in one.numbers):
            (value,) = {label(stage.axes[axis]) for stage in seeds.values()}
            labels.append(value)
        result.append(({path: label(value) for path, value in one.axes.items()}, labels))
    return result


ERRORS: dict[str, str] = {
    "paskey.passkey@64: rope > nope": "no stage 'paskey'; did you mean 'passkey'? (allowed:"
    " pretrain, perplexity, books, passkey, needle)",
    "perplexiti@64: rope > nope": "no stage measures 'perplexiti'; did you mean 'perplexity'?"
    " (allowed: loss, perplexity, loss_by_length, bits_per_byte, perplexity_ratio, passkey,"
    " needle)",
    "passkey.needle@64: rope > nope": "stage passkey does not measure 'needle' (allowed: passkey)",
    "perplexity@32: rope > nope": "perplexity and books measure perplexity; name one, as in"
    " perplexity.perplexity",
    "perplexity(python)@32: rope > nope": "no stage measures perplexity on 'python'; did you mean"
    " 'python-docs'? (allowed: c4, python-docs)",
    "passkey(c4)@32: rope > nope": "passkey is not measured on a corpus; leave out (c4)",
    "passkey@65: rope > nope": "passkey does not measure passkey at 65 (at: 32, 64, 128)",
    "passkey: rope > nope": "passkey is a curve; needs @x, one of 32, 64, 128",
    "loss@64: rope > nope": "loss is a single number, and has no @64",
    "passkey@64 where learning_rat=1e-3: rope > nope": "no axis 'learning_rat'; did you mean"
    " 'learning_rate'? (allowed: pretrain.embedding, pretrain.train.learning_rate, passkey.trials)",
    "passkey@64 where learning_rate=3e-3: rope > nope": "learning_rate has no value '3e-3'"
    " (has: 0.001, 0.002)",
    "passkey@64 where trials=10, trials=20: rope > nope": "`where` sets trials twice",
    "passkey@64 where embedding=rope: rope > nope": "`where` sets embedding, which is the axis"
    " that the claim compares",
    "passkey@64 where embedding=fope: trials=10 > 20": "fope is ambiguous: fope(base=129),"
    " fope(base=99,sigma=0.2)",
    "passkey@64: ropee > nope": "ropee is not a value of pretrain.embedding; did you mean 'rope'?"
    " (has: nope, rope, fope(base=129), fope(base=99,sigma=0.2))",
    "passkey@64: a > b": "a and b are not values of pretrain.embedding (has: nope, rope,"
    " fope(base=129), fope(base=99,sigma=0.2))",
    "passkey@64: fope > rope": "fope is ambiguous: fope(base=129), fope(base=99,sigma=0.2)",
    "passkey@64: rope > rope": "names rope twice",
    "passkey@64: fope(sigma=0.2) > fope(base=99)": "names fope(base=99,sigma=0.2) twice: as"
    " fope(sigma=0.2) and as fope(base=99)",
    'passkey@64: rope > "20"': "compares values of different axes: rope is on pretrain.embedding;"
    " 20 is on passkey.trials",
    "passkey@64: rope > 20": "compares passkey with 20, but it is between 0 and 1; a value of an"
    " axis is written axis=20",
    "passkey@64: embedding=rope > trials=20": "compares values of different axes: embedding,"
    " trials",
    "passkey@32..128: rope > nope": "found @32..128, needs one point: only grows, falls and stays"
    " run over several",
    "passkey: rope grows": "'grows' runs along an axis: needs a range of points, as in @128..1024,"
    " or an axis of the grid, as in 'grows with learning_rate'",
    "passkey@65..128: rope grows": "passkey measures passkey at 1 point in 65..128, needs at least"
    " two (at: 32, 64, 128)",
    "loss@32..64: rope grows": "loss is a single number, and has no @32..64",
    "passkey@32..64: rope grows with learning_rate": "runs along both @32..64 and learning_rate;"
    " needs one of them",
    "passkey@64: rope grows with learning_rat": "no axis 'learning_rat'; did you mean"
    " 'learning_rate'? (allowed: pretrain.embedding, pretrain.train.learning_rate, passkey.trials)",
    "passkey@64: grows with embedding": "embedding is not an axis of numbers (has: nope, rope,"
    " fope(base=129), fope(base=99,sigma=0.2))",
    "passkey@64 where learning_rate=1e-3: rope grows with learning_rate": "learning_rate has one"
    " value, 0.001; needs at least two",
    "passkey@64: rope >= nope - 2": "rope >= nope - 2: 2 is no margin of passkey, which is"
    " between 0 and 1; 5 points are 0.05",
    "passkey@64..128: rope stays within 5": "rope stays within 5: 5 is no margin of passkey, which"
    " is between 0 and 1; 5 points are 0.05",
    "passkey@64: > passkey": "compares passkey with itself",
    "passkey@64: > needle": "passkey does not measure 'needle' (allowed: passkey)",
    "perplexity.perplexity@64: < loss": "perplexity does not measure 'loss' (allowed: perplexity,"
    " loss_by_length, bits_per_byte, perplexity_ratio)",
    "passkey@64 where trials=10 rope > nope": "found 'rope > nope' after"
    " 'passkey@64 where trials=10', needs ':' and the values to compare",
}


def test_each_error_has_its_line_and_says_what_is_allowed(tmp_path: Path) -> None:
    assert messages(tmp_path, *ERRORS) == list(ERRORS.values())


def test_numbers_are_called_by_their_axis(tmp_path: Path) -> None:
    called = {
        "passkey@64: fope(base=129) > rope": ("fope(base=129)", "rope"),
        "passkey@64: embedding=rope > pretrain.embedding=nope": ("rope", "nope"),
        "passkey@64: 10 > 20": ("trials=10", "trials=20"),
        "loss: train.learning_rate=1e-3 > 2e-3": ("learning_rate=1e-3", "learning_rate=2e-3"),
    }
    for claim, names in called.items():
        numbers = found(tmp_path, claim).combinations[0].numbers
        assert tuple(one.name for one in numbers) == names


def test_a_range_that_no_model_has_whole_is_an_error(tmp_path: Path) -> None:
    axis = "grid:\n  passkey.lengths: [[32, 64], [128, 256]]\n"
    report = "report:\n  claims: ['passkey@32..256: rope grows']\n"
    [found] = told(tmp_path, SWEEP.replace("grid:\n", axis) + report)
    assert "no model has passkey at all points in 32..256 (at: 32, 64, 128, 256)" in found


def test_a_claim_stands_once(tmp_path: Path) -> None:
    found = told(tmp_path, f"{SWEEP}report:\n  claims:\n" + "    - 'passkey@64: rope > nope'\n" * 2)
    assert found == [f"{REPORT + 3} report.claims[1]: says the same as claims[0]"]
    for one, other in (
        ("rope > nope", "nope < rope"),
        ("rope >= nope - 0.02", "nope <= rope + 0.02"),
        ("rope ~ nope within 0.02", "nope ~ rope within 0.02"),
        ("rope >= 0.9", "0.9 <= rope"),
    ):
        claims = f"    - 'passkey@64: {one}'\n    - 'passkey@64: {other}'\n"
        found = told(tmp_path, f"{SWEEP}report:\n  claims:\n{claims}")
        assert found == [f"{REPORT + 3} report.claims[1]: says the same as claims[0]"]


@pytest.mark.parametrize("part", ["tables", "figures"])
def test_so_have_tables_and_figures(tmp_path: Path, part: str) -> None:
    assert messages(tmp_path, "perplexity", "pass key", "needl", "books.loss", part=part) == [
        "perplexity and books measure perplexity; name one, as in perplexity.perplexity",
        "found 'key' after 'pass', needs the end",
        "no stage measures 'needl'; did you mean 'needle'? (allowed: loss, perplexity,"
        " loss_by_length, bits_per_byte, perplexity_ratio, passkey, needle)",
        "stage books does not measure 'loss' (allowed: perplexity, loss_by_length, bits_per_byte)",
    ]


def test_a_file_that_is_wrong_elsewhere_still_says_what_is_no_claim(tmp_path: Path) -> None:
    """And nothing of claims about stages that are not known."""
    wrong = SWEEP.replace("form: symbolic", "form: symbollic", 1)
    text = f"{wrong}report:\n  claims:\n    - 'passkey@64: rope > nope'\n    - 'passkey@64'\n"
    lines = told(tmp_path, text)
    assert len(lines) == 2
    assert lines[0].startswith("7 stages.passkey.form: ")
    assert lines[1].startswith("16 report.claims[1]: ends after 'passkey@64'")
    head = text.replace("name: checked", "name: '?'").replace("symbollic", "symbolic")
    assert [line.partition(":")[0] for line in told(tmp_path, head)] == [
        "1 name",
        "16 report.claims[1]",
    ]


def test_a_right_file_loads(tmp_path: Path) -> None:
    text = f"{SWEEP}report:\n  tables: [passkey, perplexity(c4)]\n  figures: [pretrain.loss]\n"
    sweep = load_sweep(write(tmp_path / "s.yaml", f"{text}  claims: ['needle@64: nope < rope']\n"))
    assert sweep.report.claims == ("needle@64: nope < rope",)


def test_axes_that_are_not_pinned_make_combinations(tmp_path: Path) -> None:
    compared = found(tmp_path, "passkey@128: fope(base=129) > rope > nope")
    lr, trials = "pretrain.train.learning_rate", "passkey.trials"
    labels = ["fope(base=129)", "rope", "nope"]
    assert members(compared, "pretrain.embedding") == [
        ({lr: "0.001", trials: "10"}, labels),
        ({lr: "0.001", trials: "20"}, labels),
        ({lr: "0.002", trials: "10"}, labels),
        ({lr: "0.002", trials: "20"}, labels),
    ]
    for combination in compared.combinations:
        for seeds in (number.stages for number in combination.numbers):
            assert list(seeds) == [3, 4]
            assert {seed: stage.seed for seed, stage in seeds.items()} == {3: 3, 4: 4}


@pytest.mark.parametrize("value", ["1e-3", "0.001", "0.0010"])
def test_a_pinned_axis_makes_none(tmp_path: Path, value: str) -> None:
    claim = f"passkey@128 where train.learning_rate={value}, trials=20: rope > nope"
    compared = found(tmp_path, claim)
    assert members(compared, "pretrain.embedding") == [({}, ["rope", "nope"])]
    stage = compared.combinations[0].numbers[0].stages[3]
    assert stage.axes["pretrain.train.learning_rate"] == 1e-3
    assert stage.config["trials"] == 20


@pytest.mark.parametrize(
    "term",
    ["fope(sigma=0.2)", "fope(base=99)", "fope(base=99,sigma=0.2)", "fope(base=99.0,sigma=2e-1)"],
)
def test_a_value_needs_only_the_options_that_tell_it(tmp_path: Path, term: str) -> None:
    compared = found(tmp_path, f"needle@64 where learning_rate=1e-3: {term} > rope")
    assert members(compared, "pretrain.embedding") == [({}, ["fope(base=99,sigma=0.2)", "rope"])]


def test_other_axes_are_compared_too(tmp_path: Path) -> None:
    compared = found(tmp_path, "needle@64 where embedding=rope: 1e-3 > 2e-3")
    assert members(compared, "pretrain.train.learning_rate") == [({}, ["0.001", "0.002"])]


@pytest.mark.parametrize(
    ("claim", "stage", "metric"),
    [
        ("perplexity(c4)@64: rope < nope", "perplexity", "perplexity_by_length"),
        ("perplexity(python-docs)@32: rope < nope", "books", "perplexity_by_length"),
        ("books.perplexity@32: rope < nope", "books", "perplexity_by_length"),
        ("perplexity_ratio@32: rope < nope", "perplexity", "perplexity_ratio_by_length"),
        ("passkey_accuracy_by_length@32: rope < nope", "passkey", "passkey_accuracy_by_length"),
        ("loss: rope < nope", "pretrain", "loss"),
    ],
)
def test_the_stage_that_is_meant(tmp_path: Path, claim: str, stage: str, metric: str) -> None:
    measured = found(tmp_path, claim).measured
    assert (measured.stage, measured.metric.name) == (stage, metric)


def test_an_axis_that_goes_along_is_compared_with_it(tmp_path: Path) -> None:
    content = f"""name: zipped
stages:
  pretrain: {PRETRAIN_LINE}
  extend:
    kind: extend
    from: pretrain
    data: {{corpus: c4, length: 128}}
    train: {{tokens: 1e4, batch_tokens: 1024, learning_rate: 1e-3}}
  passkey: {{kind: passkey, from: extend, lengths: [64], form: symbolic}}
zip:
  pretrain.embedding: [nope, rope, fope]
  extend.embedding: [nope, {{type: yarn, factor: 2}}, fope]
"""
    compared = found(tmp_path, "passkey@64: fope > rope", content)
    assert members(compared, "extend.embedding") == [({}, ["fope", "yarn(factor=2)"])]
    other = found(tmp_path, "passkey@64: fope > yarn", content)
    assert members(other, "pretrain.embedding") == [({}, ["fope", "rope"])]
    same = found(tmp_path, "passkey@64: fope > nope", content)  # of both axes, the same stages
    assert members(same, "extend.embedding") == [({}, ["fope", "nope"])]


SMALL = f"""name: small
stages:
  pretrain: {PRETRAIN_LINE}
  passkey: {{kind: passkey, from: pretrain, lengths: [32], form: symbolic}}
"""


def test_axes_with_the_same_values_everywhere_are_one(tmp_path: Path) -> None:
    content = SMALL + (
        "zip:\n  pretrain.train.checkpoint_every: [100, 200]\n  passkey.trials: [100, 200]\n"
        "grid:\n  pretrain.embedding: [nope, rope]\n"
    )
    compared = found(tmp_path, "passkey@32: rope > nope", content)
    path = "pretrain.train.checkpoint_every"
    labels = ["rope", "nope"]
    expected = [({path: "100"}, labels), ({path: "200"}, labels)]
    assert members(compared, "pretrain.embedding") == expected
    for pin in ("trials=100", "checkpoint_every=100"):
        pinned = found(tmp_path, f"passkey@32 where {pin}: rope > nope", content)
        assert members(pinned, "pretrain.embedding") == [({}, labels)]


def test_an_ambiguous_axis_is_an_error(tmp_path: Path) -> None:
    content = SMALL + (
        "  needle: {kind: needle, from: pretrain, lengths: [32], form: symbolic}\n"
        "grid:\n  pretrain.model.num_heads: [1, 2]\n  pretrain.model.num_layers: [1, 2]\n"
        "report:\n  claims: ['needle@32: 1 > 2', 'needle@32: num_heads=1 > 2']\n"
    )
    (said,) = told(tmp_path, content)
    assert said == (
        "10 report.claims[0]: 1 and 2 can be a value of pretrain.model.num_heads or"
        " pretrain.model.num_layers; write axis=value in full"
    )


def test_cells_without_a_partner_are_an_error_if_there_are_no_others(tmp_path: Path) -> None:
    content = SMALL + (
        "grid:\n  pretrain.embedding: [nope, rope, alibi]\n"
        "  pretrain.train.learning_rate: [1e-3, 2e-3]\n"
        "exclude:\n  - {pretrain.embedding: nope, pretrain.train.learning_rate: 1e-3}\n"
        "  - {pretrain.embedding: rope, pretrain.train.learning_rate: 2e-3}\n"
        "report:\n  claims:\n    - 'passkey@32: rope > nope'\n    - 'passkey@32: rope > alibi'\n"
    )
    (said,) = told(tmp_path, content)
    assert said == (
        "13 report.claims[0]: the grid has no rope and nope with the same"
        " pretrain.train.learning_rate"
    )


def test_no_axis_is_nothing_to_compare(tmp_path: Path) -> None:
    content = f"{SMALL}report: {{claims: ['passkey@32: rope > nope']}}\n"
    (said,) = told(tmp_path, content)
    assert said.endswith("compares values of an axis, but the sweep has no axis for these stages")


# What each form of a statement compares and tests


WHERE = "where learning_rate=1e-3, trials=10"
CONTRASTS = {
    f"passkey@64 {WHERE}: rope > nope > fope(base=129)": [
        ("rope − nope", "greater", 0.0),
        ("nope − fope(base=129)", "greater", 0.0),
    ],
    f"passkey@64 {WHERE}: rope > 0.9": [("rope", "greater", 0.9)],
    f"passkey@64 {WHERE}: 0.9 > rope": [("− rope", "greater", -0.9)],
    f"passkey@64 {WHERE}, embedding=rope: <= 0.9": [("passkey", "less", 0.9)],
    f"passkey@64 {WHERE}: rope >= nope - 0.02": [("rope − nope", "greater", -0.02)],
    f"passkey@64 {WHERE}: rope <= nope * 1.01": [("rope − 1.01 · nope", "less", 0.0)],
    f"passkey@64 {WHERE}: rope ~ nope within 0.02": [
        ("rope − nope", "greater", -0.02),
        ("rope − nope", "less", 0.02),
    ],
    f"passkey@64 {WHERE}: rope ~ nope within 1%": [
        ("rope − 0.99 · nope", "greater", 0.0),
        ("rope − 1.01 · nope", "less", 0.0),
    ],
    f"passkey@64 {WHERE}: rope ~ 0.5 within 10%": [
        ("rope", "greater", 0.45),
        ("rope", "less", pytest.approx(0.55)),
    ],
    f"passkey@32..128 {WHERE}: rope falls": [("slope of rope per doubling of length", "less", 0.0)],
    f"passkey@64..999 {WHERE}: rope grows at most 5%": [("rope@128 − 1.05 · rope@64", "less", 0.0)],
    f"passkey@32..128 {WHERE}: rope stays within 0.1": [
        ("rope@64 − rope@32", "greater", -0.1),
        ("rope@64 − rope@32", "less", 0.1),
        ("rope@128 − rope@32", "greater", -0.1),
        ("rope@128 − rope@32", "less", 0.1),
    ],
    "needle@64: rope grows with learning_rate": [
        ("slope of rope per doubling of learning_rate", "greater", 0.0)
    ],
    "perplexity_ratio@32 where learning_rate=1e-3, embedding=rope: < perplexity": [
        ("perplexity_ratio − perplexity", "less", 0.0)
    ],
}


@pytest.mark.parametrize("claim", CONTRASTS)
def test_the_contrasts_of_every_form(tmp_path: Path, claim: str) -> None:
    first = found(tmp_path, claim).combinations[0]
    assert [(one.name, one.side, one.null) for one in first.contrasts] == CONTRASTS[claim]


LEARNING_FROM_0 = f"{SMALL}grid: {{pretrain.train.weight_decay: [0.0, 0.1, 0.4]}}\n"


@pytest.mark.parametrize(
    ("claim", "content", "xs", "name"),
    [
        (f"passkey@32..128 {WHERE}: rope grows", SWEEP, np.log2([32, 64, 128]),
         "slope of rope per doubling of length"),
        ("passkey@32: grows with weight_decay", LEARNING_FROM_0, [0.0, 0.1, 0.4],
         "slope of passkey per 1 of weight_decay"),
    ],
)  # fmt: skip
def test_a_slope_is_numpys(
    tmp_path: Path, claim: str, content: str, xs: list[float], name: str
) -> None:
    (slope,) = found(tmp_path, claim, content).combinations[0].contrasts
    assert slope.name == name
    ys = [0.3, -1.7, 2.2]
    expected = np.polyfit(xs, ys, 1)[0]
    assert sum(weight * ys[i] for i, weight in slope.weights.items()) == pytest.approx(expected)


def test_a_statement_without_a_term_has_a_verdict_for_every_model(tmp_path: Path) -> None:
    compared = found(tmp_path, "passkey@32..64 where learning_rate=1e-3, trials=10: grows")
    embeddings = [label(one.axes["pretrain.embedding"]) for one in compared.combinations]
    assert embeddings == ["nope", "rope", "fope(base=129)", "fope(base=99,sigma=0.2)"]
    along = found(tmp_path, "passkey@32 where embedding=rope: grows with trials")
    assert [dict(one.axes) for one in along.combinations] == [
        {"pretrain.train.learning_rate": 1e-3},
        {"pretrain.train.learning_rate": 2e-3},
    ]
    names = [one.name for one in along.combinations[0].numbers]
    assert names == ["passkey[trials=10]", "passkey[trials=20]"]


FIGURES = """name: figures
stages:
  angles: {kind: analysis, analysis: rotation-angles}
report:
"""


def test_a_number_that_an_analysis_does_not_declare_is_an_error(tmp_path: Path) -> None:
    claims = ["angles.gap_ropee: > 0", "angles.gap_rope: < gap_ropee"]
    lines = "".join(f"    - '{claim}'\n" for claim in claims)
    names = "wavelength_rope, gap_rope, wavelength_resonance_rope, gap_resonance_rope"
    assert told(tmp_path, f"{FIGURES}  claims:\n{lines}") == [
        "6 report.claims[0]: stage angles does not measure 'gap_ropee'; did you mean 'gap_rope'?"
        f" (allowed: {names})",
        "7 report.claims[1]: angles does not measure 'gap_ropee'; did you mean 'gap_rope'?"
        f" (allowed: {names})",
    ]


def test_no_table_shows_a_number_of_an_analysis(tmp_path: Path) -> None:
    (said,) = told(tmp_path, f"{FIGURES}  tables: [angles.gap_rope]\n")
    assert said.endswith("angles.gap_rope is a number of an analysis, which no table or figure has")
