"""The text of claims: what it says, how it is written, and what is no claim."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.sweep.claims.grammar import (
    Claim,
    ClaimError,
    Pin,
    Quantity,
    parse_claim,
    parse_quantity,
)

names = st.text(f"{string.ascii_letters}{string.digits}_-", min_size=1, max_size=8)
axes = st.text(f"{string.ascii_letters}{string.digits}_.-", min_size=1, max_size=8)
values = st.one_of(
    names,
    st.text(max_size=8),
    st.sampled_from(
        ["fope(sigma=0.1,base=129)", "10e9", "a(b(c,d),e=f)", "hf:x/y@1", "(", ")", " a", "a b(c"]
    ),
)
quantities = st.builds(Quantity, names, st.none() | names, st.none() | values)
terms = st.builds(Pin, values, st.none() | axes)
claims = st.builds(
    Claim,
    quantities,
    st.none() | st.integers(0, 10**9),
    st.lists(st.builds(Pin, values, axes), max_size=3).map(tuple),
    st.sampled_from(["<", ">"]),
    st.lists(terms, min_size=2, max_size=4, unique=True).map(tuple),
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
            Claim(Quantity("passkey"), 1024, (), ">", (Pin("fope"), Pin("rope"))),
        ),
        (
            "  tail.perplexity ( books )@512 where scale=60m,model.num_layers = 2 :a<b<c  ",
            Claim(
                Quantity("perplexity", "tail", "books"),
                512,
                (Pin("60m", "scale"), Pin("2", "model.num_layers")),
                "<",
                (Pin("a"), Pin("b"), Pin("c")),
            ),
        ),
        (
            "posgen: fope( sigma=0.1, base=129 ) > sigma=0.1",
            Claim(
                Quantity("posgen"),
                None,
                (),
                ">",
                (Pin("fope(sigma=0.1,base=129)"), Pin("0.1", "sigma")),
            ),
        ),
        (
            'loss where from="hf:a/b@c": "a: b" < c',
            Claim(Quantity("loss"), None, (Pin("hf:a/b@c", "from"),), "<", (Pin("a: b"), Pin("c"))),
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
        ("passkey: a > b < c", "mixes > and <; a chain needs one of them"),
        ("passkey: a > b > a", "names a twice"),
        ("passkey: f(a > b", "needs a value with a closing bracket"),
        ('passkey: "a > b', "needs a closing quote"),
        ("passkey: a >= b", "needs a value"),
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
