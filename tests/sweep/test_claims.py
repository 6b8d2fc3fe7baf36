"""The text of claims: what it says, what is no claim, and the sentence that a claim stands for."""

from __future__ import annotations

import contextlib
import re
import string
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sweep_files import PRETRAIN_LINE, told, write

from fope_lab.sweep import load_sweep
from fope_lab.sweep.claims.grammar import parse_claim, parse_quantity
from fope_lab.sweep.claims.statement import (
    VERBS,
    Claim,
    ClaimError,
    Constant,
    Itself,
    Margin,
    OtherNumber,
    Pin,
    Quantity,
    Statement,
)
from fope_lab.sweep.report_section import Sentence
from fope_lab.sweep.schema import sweep_json_schema


@given(st.text(f'{string.printable}"', max_size=30))
def test_any_text_is_a_claim_or_an_error(text: str) -> None:
    with contextlib.suppress(ClaimError):
        parse_claim(text)


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("passkey@1024: fope > rope",
         Claim(Quantity("passkey"), 1024, (), Statement((Pin("fope"), Pin("rope")), ">"))),
        ("  tail.perplexity ( books )@512 where scale=60m,model.num_layers = 2 :a<b<c  ",
         Claim(Quantity("perplexity", "tail", "books"), 512, (Pin("60m", "scale"), Pin("2",
         "model.num_layers")), Statement((Pin("a"), Pin("b"), Pin("c")), "<"))),
        ("posgen: fope( sigma=0.1, base=129 ) > sigma=0.1",
         Claim(Quantity("posgen"), None, (), Statement((Pin("fope(sigma=0.1,base=129)"), Pin("0.1",
         "sigma")), ">"))),
        ("loss: length=128 <= 256 * 1.01",
         Claim(Quantity("loss"), None, (), Statement((Pin("128", "length"), Pin("256")), "<=",
         Margin(1.01, "*")))),
        ('loss where from="hf:a/b@c": "a: b" < c',
         Claim(Quantity("loss"), None, (Pin("hf:a/b@c", "from"),), Statement((Pin("a: b"),
         Pin("c")), "<"))),
    ],
)  # fmt: skip
def test_examples(text: str, claim: Claim) -> None:
    assert parse_claim(text) == claim


STATEMENTS = {
    "a > b > c": Statement((Pin("a"), Pin("b"), Pin("c")), ">"),
    "a > 0.9": Statement((Pin("a"), Constant(0.9)), ">"),
    "128 > 256": Statement((Pin("128"), Pin("256")), ">"),
    'a > "128"': Statement((Pin("a"), Pin("128")), ">"),
    '"a b" > "0.5" > s=1': Statement((Pin("a b"), Pin("0.5"), Pin("1", "s")), ">"),
    "< 0.9": Statement((Itself(), Constant(0.9)), "<"),
    "> bound": Statement((Itself(), OtherNumber("bound")), ">"),
    "a <= 0.9": Statement((Pin("a"), Constant(0.9)), "<="),
    "a<=b*1.01": Statement((Pin("a"), Pin("b")), "<=", Margin(1.01, "*")),
    "a >= b * 0.99": Statement((Pin("a"), Pin("b")), ">=", Margin(0.99, "*")),
    "a <= b + 0.02": Statement((Pin("a"), Pin("b")), "<=", Margin(0.02)),
    "a >= b − 2e-2": Statement((Pin("a"), Pin("b")), ">=", Margin(0.02)),
    "a ~ b within 1 %": Statement((Pin("a"), Pin("b")), "~", Margin(1.0, "%")),
    "a ~ 0.5 within 0.02": Statement((Pin("a"), Constant(0.5)), "~", Margin(0.02)),
    "grows": Statement((Itself(),), "grows"),
    "lr=1 falls with x.y": Statement((Pin("1", "lr"),), "falls", None, "x.y"),
    "64 grows  at most 5%": Statement((Pin("64"),), "grows at most", Margin(5.0, "%")),
    "falls at most 0.1 with lr": Statement((Itself(),), "falls at most", Margin(0.1), "lr"),
    "a(b,c=d) stays within 2%": Statement((Pin("a(b,c=d)"),), "stays within", Margin(2.0, "%")),
    '"grows" > b': Statement((Pin("grows"), Pin("b")), ">"),
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_every_form_of_a_statement(text: str) -> None:
    for quantity in ("a.loss(files(2))@8 where x.y=1: ", "loss@8..16:", "loss :  "):
        assert parse_claim(f"{quantity}{text}").statement == STATEMENTS[text]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; needs [stage.]metric[(corpus)]@x [where axis=value, …]: a > b [> c]"),
        (": a > b", "found ': a > b' after '', needs a metric"),
        ("a.: a > b", "needs a metric"),
        ("passkey@1024", "ends after 'passkey@1024', needs ':' and the values to compare"),
        ("passkey@: a > b", "needs a whole number such as 1024 after @"),
        ("passkey@1e3: a > b", "needs a whole number such as 1024 after @"),
        ("passkey(c4: a > b", "needs ')' after a corpus"),
        ("passkey where scale: a > b", "needs axis=value after where"),
        ("passkey where scale=60m,: a > b", "needs axis=value after where"),
        ("passkey: a", "compares 'a' with nothing"),
        ("passkey: a >", "ends after 'passkey: a >', needs a value"),
        ("passkey: a > b c", "found 'c' after 'passkey: a > b', needs > or <"),
        ("passkey: a > b * 1.01", "found * after a > or <: a margin goes with >= or <="),
        ("passkey: a <= b + 1%", "+ 1%: a margin of 1% is written * 1.01"),
        ("passkey: a >= b - 1%", "- 1%: a margin of 1% is written * 0.99"),
        ("passkey: a == b", "found == where a claim has ~ and a margin"),
        ("passkey: a != b", "found != where a claim has > or <"),
        ("passkey: a≤b", "found ≤ where a claim has <="),
        ("passkey: a~b within 1%", "found 'a~b': a ~ that compares has a space on each side"),
        ("passkey: a <= b within 1%", "needs a margin such as * 1.01, + 0.02 or - 0.02, or the"),
        ("passkey: a > 90%", "found 90%, needs a number such as 0.9; % is for margins"),
        ("passkey: a <= 1.01 * b", "found 1.01 before a *: a factor comes last, as in b * 1.01"),
        ("passkey: 1.01 * a > b", "found 1.01 before a *: a factor comes last, as in b * 1.01"),
        ("passkey: a > b < c", "mixes > and <; a chain needs one of them"),
        ("passkey: a > b > a", "names a twice"),
        ("passkey: f(a > b", "needs a value with a closing bracket"),
        ('passkey: "a > b', "needs a closing quote"),
        ("passkey: a > = b", "needs a value"),
        ("passkey: a >= b", "a >= b needs a margin, such as a >= b * 0.99"),
        ("passkey: a <= b", "a <= b needs a margin, such as a <= b * 1.01"),
        ("passkey: a ~ b", "a ~ b needs a margin, such as a ~ b within 1%"),
        ("passkey: a <= b * 1", "* 1 is no margin of <=: a factor that leaves room is more than 1"),
        (
            "passkey: a >= b * 1.01",
            "* 1.01 is no margin of >=: a factor that leaves room is between",
        ),
        ("passkey: a <= b * 1e999", "1e999 is too large for a number"),
        ("passkey: a <= b * x", "found 'x' after 'passkey: a <= b *', needs a number such as 1.01"),
        ("passkey: a <= b * 1.01x", "needs a number such as 1.01 after *"),
        ("passkey: a <= b - 0.1", "- 0.1 is no margin of <=: a margin that leaves room is + and"),
        ("passkey: a >= b + 0.1", "+ 0.1 is no margin of >=: a margin that leaves room is - and"),
        ("passkey: a <= b + 0", "+ 0 is no margin of <="),
        ("passkey: a <= 0.5 + 0.1", "a margin is for two models; here, write the limit itself"),
        ("passkey: a <= b * 1.01 <= c", "needs the end"),
        ("passkey: a ~ b within", "needs a margin such as 1% or 0.02 after 'within'"),
        ("passkey: a ~ b within 0%", "within 0%: a margin is more than 0"),
        ("passkey: a ~ b within 1e-300%", "a margin is more than 0"),
        ("passkey: a ~ b within 100%", "a margin below a number is less than 100%"),
        ("passkey: a ~ 0 within 1%", "a share of 0 is no margin; write an amount"),
        ("passkey: a grows at most", "needs a margin such as 1% or 0.02 after 'grows at most'"),
        ("passkey: a stays", "needs 'within' and a margin, as in 'stays within 5%'"),
        ("passkey: a falls at most 120%", "a margin below a number is less than 100%"),
        ("passkey: a grows with", "needs an axis after 'with'"),
        ("passkey: a grows x", "found 'x' after 'passkey: a grows', needs 'with' and an axis"),
        ("passkey: 0.5", "compares '0.5' with nothing"),
        ("passkey:", "ends after 'passkey:', needs a value"),
        ("passkey: > lr=0.1", "compares lr=0.1 with no other value"),
        ("passkey@8..8: a grows", "@8..8 is no range: the second point is not above the first"),
        ("passkey: a = b", "compares 'a=b' with nothing"),
    ],
)
def test_what_is_no_claim(text: str, message: str) -> None:
    with pytest.raises(ClaimError) as caught:
        parse_claim(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ("a@3", "found '@3' after 'a', needs the end"), ("a(b", "needs ')'")],
)
def test_what_no_table_shows(text: str, message: str) -> None:
    with pytest.raises(ClaimError) as caught:
        parse_quantity(text)
    assert message in str(caught.value)


PAGE = Path(__file__).parents[2] / "docs" / "pages" / "explanation" / "claims.md"


def test_the_page_has_every_verb_and_every_claim_on_it_is_one() -> None:
    page = PAGE.read_text("utf-8")
    found = re.findall(r"`([a-z0-9_.()-]+(?:@[0-9.]+)?(?: where [^:`]+)?: [^`]+)`", page)
    assert len(found) > 10
    for text in found:
        parse_claim(text)
    assert all(verb in page for verb in VERBS)


SWEEP = f"""name: grouped
stages:
  pretrain: {PRETRAIN_LINE}
  passkey: {{kind: passkey, from: pretrain, lengths: [32, 64], form: symbolic}}
grid:
  pretrain.embedding: [nope, rope]
report:
  claims:
    - "passkey@64: rope > nope"
"""
LINE = 10
"""The line of what is added to the claims."""


def test_claims_know_their_sentence(tmp_path: Path) -> None:
    text = f"""{SWEEP}    - quote: RoPE is ahead.
      place: §5
      note: Of two lengths, this is the shorter.
      claims:
        - "passkey@32: rope > nope"
        - "passkey@32: rope > 0.5"
    - {{note: Our own., claims: ["passkey@64: rope > 0.5"]}}
"""
    stated = load_sweep(write(tmp_path / "s.yaml", text)).report.stated
    basis = Sentence("RoPE is ahead.", "§5", "Of two lengths, this is the shorter.")
    assert [(claim.text, claim.basis) for claim in stated] == [
        ("passkey@64: rope > nope", None),
        ("passkey@32: rope > nope", basis),
        ("passkey@32: rope > 0.5", basis),
        ("passkey@64: rope > 0.5", Sentence(note="Our own.")),
    ]
    assert str(basis) == "“RoPE is ahead.” (§5) Of two lengths, this is the shorter."
    assert str(Sentence(note="Our own.")) == "Our own."
    schema = sweep_json_schema()["properties"]["report"]
    jsonschema.validate(yaml.safe_load(text)["report"], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"claims": [{"quot": "A.", "claims": ["passkey@32: > 0.5"]}]}, schema)


WRONG = {
    "{quote: A.}": "report.claims[1].claims: is missing",
    "{claims: ['passkey@32: rope > nope']}": (
        "report.claims[1]: has claims only, needs a quote, or a note on where they come from"
    ),
    "{note: N., place: §5, claims: ['passkey@32: rope > nope']}": (
        "report.claims[1].place: has no effect: there is no quote"
    ),
    "{quote: '', claims: ['passkey@32: rope > nope']}": (
        "report.claims[1].quote: found '', needs text that is not empty"
    ),
    "{quote: A., claims: []}": "report.claims[1].claims: found [], needs at least one entry",
    "{quot: A., note: N., claims: ['passkey@32: rope > nope']}": (
        "report.claims[1].quot: unknown key 'quot'; did you mean 'quote'?"
    ),
    "{quote: A., claims: ['passkey@32: rope > fope']}": "report.claims[1].claims[0]: ",
    "{quote: A., claims: ['passkey@64: rope > nope']}": (
        "report.claims[1].claims[0]: says the same as claims[0]"
    ),
    "5": "report.claims[1]: found 5, needs text or a mapping with claims",
}


@pytest.mark.parametrize("entry", WRONG)
def test_a_wrong_group_is_told_with_its_line(tmp_path: Path, entry: str) -> None:
    (found,) = told(tmp_path, f"{SWEEP}    - {entry}\n")
    assert found.startswith(f"{LINE} {WRONG[entry]}")


def test_the_limit_counts_claims_and_not_groups(tmp_path: Path) -> None:
    claims = ", ".join(f"'passkey@32: rope > 0.{i:04}'" for i in range(700))
    text = f"max_stages: 12\n{SWEEP}    - {{note: Many., claims: [{claims}]}}\n"
    (found,) = told(tmp_path, text)
    assert "report.claims: 701 claims about " in found
