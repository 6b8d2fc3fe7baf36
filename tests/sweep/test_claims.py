"""The text of claims: what it says, how it is written, and what is no claim."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.sweep.claims.grammar import FORMS, Form, parse_claim, parse_quantity, settle
from fope_lab.sweep.claims.statement import (
    Claim,
    Constant,
    Itself,
    Margin,
    OtherNumber,
    Pin,
    PointRange,
    Quantity,
    Statement,
)
from fope_lab.sweep.claims.text import ClaimError

names = st.text(f"{string.ascii_letters}{string.digits}_-", min_size=1, max_size=8)
axes = st.text(f"{string.ascii_letters}{string.digits}_.-", min_size=1, max_size=8)
values = st.one_of(
    names,
    st.text(max_size=8),
    st.sampled_from(
        ["fope(sigma=0.1,base=129)", "10e9", "a(b(c,d),e=f)", "hf:x/y@1", "(", ")", " a", "a b(c"]
    ),
    st.sampled_from(["grows", "falls", "stays", "~", "a*b", "0.5", "-1e-3", "with", "within"]),
)
quantities = st.builds(Quantity, names, st.none() | names, st.none() | values)
terms = st.builds(Pin, values, st.none() | axes)
numbers = st.floats(allow_nan=False, allow_infinity=False)
constants = st.builds(Constant, numbers)
amounts = st.builds(Margin, st.floats(1e-6, 1e6))
shares = st.builds(Margin, st.floats(1e-6, 99.9), st.just("%"))


def operands(most: int) -> st.SearchStrategy[tuple[Pin | Constant | OtherNumber | Itself, ...]]:
    """Two to `most` operands: values of an axis, one with a constant, or numbers of a stage."""
    pins = st.lists(terms, min_size=2, max_size=most, unique=True)
    mixed = st.tuples(terms.filter(lambda term: not settled_away(term)), constants).map(list)
    other = st.one_of(constants, st.builds(OtherNumber, names.filter(is_name)))
    own = st.tuples(st.just(Itself()), other).map(list)
    return st.one_of(pins, mixed, own).map(tuple)


def settled_away(term: Pin) -> bool:
    """Whether a number beside this term is a value of an axis."""
    return settle([term, Constant(1.0, "1")])[1] == Pin("1")


def is_name(text: str) -> bool:
    """Whether a text is no number."""
    return settle([Pin(text), Constant(1.0, "1")])[1] == Constant(1.0)


subjects = st.tuples(st.one_of(terms, st.just(Itself())))
along = st.none() | axes
two_terms = st.lists(terms, min_size=2, max_size=2, unique=True).map(tuple)
limits = st.tuples(st.just(Itself()), constants)
statements = st.one_of(
    st.builds(Statement, operands(4), st.sampled_from(["<", ">"])),
    st.builds(Statement, operands(2), st.just("~"), amounts),
    st.builds(Statement, two_terms, st.just("~"), shares),
    st.builds(
        Statement, two_terms, st.just("<="), st.builds(Margin, st.floats(1.001, 1e6), st.just("*"))
    ),
    st.builds(
        Statement, two_terms, st.just(">="), st.builds(Margin, st.floats(1e-6, 0.999), st.just("*"))
    ),
    st.builds(Statement, two_terms, st.sampled_from(["<=", ">="]), amounts),
    st.builds(Statement, limits, st.sampled_from(["<=", ">="])),
    st.builds(
        Statement,
        subjects,
        st.sampled_from(["grows at most", "falls at most", "stays within"]),
        amounts | shares,
        along,
    ),
    st.builds(Statement, subjects, st.sampled_from(["grows", "falls"]), st.none(), along),
)
ranges = st.tuples(st.integers(0, 10**9), st.integers(1, 10**9)).map(
    lambda pair: PointRange(pair[0], sum(pair))
)
claims = st.builds(
    Claim,
    quantities,
    st.none() | st.integers(0, 10**9) | ranges,
    st.lists(st.builds(Pin, values, axes), max_size=3).map(tuple),
    statements,
)


@given(claims)
def test_what_is_written_is_read_as_the_same(claim: Claim) -> None:
    assert parse_claim(str(claim)) == claim


@given(quantities)
def test_so_is_what_a_table_shows(quantity: Quantity) -> None:
    assert parse_quantity(str(quantity)) == quantity


@given(st.text(f'{string.printable}"', max_size=30))
def test_any_text_is_a_claim_or_an_error(text: str) -> None:
    try:
        claim = parse_claim(text)
    except ClaimError:
        return
    assert parse_claim(str(claim)) == claim


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        (
            "passkey@1024: fope > rope",
            Claim(Quantity("passkey"), 1024, (), Statement((Pin("fope"), Pin("rope")), ">")),
        ),
        (
            "  tail.perplexity ( books )@512 where scale=60m,model.num_layers = 2 :a<b<c  ",
            Claim(
                Quantity("perplexity", "tail", "books"),
                512,
                (Pin("60m", "scale"), Pin("2", "model.num_layers")),
                Statement((Pin("a"), Pin("b"), Pin("c")), "<"),
            ),
        ),
        (
            "posgen: fope( sigma=0.1, base=129 ) > sigma=0.1",
            Claim(
                Quantity("posgen"),
                None,
                (),
                Statement((Pin("fope(sigma=0.1,base=129)"), Pin("0.1", "sigma")), ">"),
            ),
        ),
        (
            "loss: length=128 <= 256 * 1.01",
            Claim(
                Quantity("loss"),
                None,
                (),
                Statement((Pin("128", "length"), Pin("256")), "<=", Margin(1.01, "*")),
            ),
        ),
        (
            'loss where from="hf:a/b@c": "a: b" < c',
            Claim(
                Quantity("loss"),
                None,
                (Pin("hf:a/b@c", "from"),),
                Statement((Pin("a: b"), Pin("c")), "<"),
            ),
        ),
    ],
)
def test_examples(text: str, claim: Claim) -> None:
    assert parse_claim(text) == claim


def test_the_written_form() -> None:
    text = 'a.loss(files(2))@8 where x.y=1, from="hf:n": fope(base=129) > "b c" > s=1'
    assert str(parse_claim(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; needs [stage.]metric[(corpus)]@x [where axis=value, …]: a > b [> c]"),
        ("  ", "is empty; needs"),
        (": a > b", "found ': a > b' after '', needs a metric"),
        ("a.: a > b", "needs a metric"),
        ("passkey@1024", "ends after 'passkey@1024', needs ':' and the values to compare"),
        ("passkey@: a > b", "needs a whole number such as 1024 after @"),
        ("passkey@1e3: a > b", "needs a whole number such as 1024 after @"),
        ("passkey@8.5: a > b", "needs a whole number such as 1024 after @"),
        ("passkey@-1: a > b", "needs a whole number"),
        ("passkey(c4: a > b", "needs ')' after a corpus"),
        ("passkey where scale: a > b", "needs axis=value after where"),
        ("passkey where : a > b", "needs axis=value after where"),
        ("passkey where scale=60m,: a > b", "needs axis=value after where"),
        ("passkey: a", "compares 'a' with nothing"),
        ("passkey: a >", "ends after 'passkey: a >', needs a value"),
        ("passkey: a > b c", "found 'c' after 'passkey: a > b', needs > or <"),
        ("passkey: a > b * 1.01", "found * after a > or <: a margin goes with >= or <="),
        ("passkey: a < b + 0.02", "found + after a > or <: a margin goes with >= or <="),
        ("passkey: a <= b + 1%", "+ 1%: a margin of 1% is written * 1.01"),
        ("passkey: a >= b - 1%", "- 1%: a margin of 1% is written * 0.99"),
        ("passkey: a == b", "found == where a claim has ~ and a margin"),
        ("passkey: a ≈ b", "found ≈ where a claim has ~ and a margin"),
        ("passkey: a != b", "found != where a claim has > or <"),
        ("passkey: a≤b", "found ≤ where a claim has <="),
        ("passkey: a > b == c", "found == where a claim has ~ and a margin"),
        ("passkey: a~b within 1%", "found 'a~b': a ~ that compares has a space on each side"),
        ("passkey: a > b - 0.02", "found - after a > or <: a margin goes with >= or <="),
        ("passkey: a <= b within 1%", "needs a margin such as * 1.01, + 0.02 or - 0.02, or the"),
        ("passkey: a > 90 %", "found 90%, needs a number such as 0.9; % is for margins"),
        ("passkey: a ~ 1.01 * b within 1%", "found 1.01 before a *: a factor comes last"),
        ("passkey: a =< b", "found =< where a claim has <="),
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
        ("passkey: a <= b * 0", "* 0 is no margin of <=: a factor that leaves room is more than 1"),
        ("passkey: a <= b * -1", "* -1 is no margin of <="),
        ("passkey: a <= b * 1", "* 1 is no margin of <="),
        ("passkey: a <= b * 0.99", "* 0.99 is no margin of <="),
        (
            "passkey: a >= b * 1.01",
            "* 1.01 is no margin of >=: a factor that leaves room is between",
        ),
        ("passkey: a >= b * 0", "* 0 is no margin of >="),
        ("passkey: a <= b * 1e999", "1e999 is too large for a number"),
        ("passkey: a <= b * x", "found 'x' after 'passkey: a <= b *', needs a number such as 1.01"),
        (
            "passkey: a <= b *",
            "ends after 'passkey: a <= b *', needs a number such as 1.01 after *",
        ),
        ("passkey: a <= b * 1.01x", "needs a number such as 1.01 after *"),
        ("passkey: a <= b - 0.1", "- 0.1 is no margin of <=: a margin that leaves room is + and"),
        ("passkey: a >= b + 0.1", "+ 0.1 is no margin of >=: a margin that leaves room is - and"),
        ("passkey: a <= b + 0", "+ 0 is no margin of <="),
        ("passkey: a <= b + -0.1", "+ -0.1 is no margin of <="),
        ("passkey: a <= 0.5 + 0.1", "a margin is for two models; here, write the limit itself"),
        ("passkey: a <= b * 1.01 <= c", "needs the end"),
        ("passkey: a ~ b within", "needs a margin such as 1% or 0.02 after 'within'"),
        ("passkey: a ~ b within 0%", "within 0%: a margin is more than 0"),
        ("passkey: a ~ b within -1%", "within -1%: a margin is more than 0"),
        ("passkey: a ~ b within 1e-300%", "a margin is more than 0"),
        ("passkey: a ~ b within 100%", "a margin below a number is less than 100%"),
        ("passkey: a ~ b within 1e999", "1e999 is too large for a number"),
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
        ("passkey@8..: a grows", "needs a whole number such as 1024 after @"),
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


@pytest.mark.parametrize("form", FORMS)
def test_the_page_has_every_form_with_an_example_and_its_test(form: Form) -> None:
    assert parse_claim(form.example).statement.verb in form.verbs
    assert f"| `{form.written}` | `{form.example}` | {form.tested}" in PAGE.read_text("utf-8")


def test_every_claim_on_the_page_is_one() -> None:
    found = re.findall(
        r"`([a-z0-9_.()-]+(?:@[0-9.]+)?(?: where [^:`]+)?: [^`]+)`", PAGE.read_text()
    )
    assert len(found) > 10
    for text in found:
        assert parse_claim(str(parse_claim(text))) == parse_claim(text)
