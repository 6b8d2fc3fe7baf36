"""The ends of the tags by which MLflow colours lines: unseen, and each colour once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fope_lab.tracking.line_colours import (
    COLOURS,
    UNSEEN,
    colour_of_group,
    colour_of_line,
    curve_tags,
)

names = st.text(st.characters(codec="utf-8"), max_size=20).filter(
    lambda name: not set(name) & set(UNSEEN)
)


def test_the_sum_is_what_mlflow_draws_by() -> None:
    """Seen in charts of MLflow 3.17.2: #be501e, and twice #a6630c, the first of its palette."""
    assert colour_of_group("tag.embedding.nope") == 14
    assert colour_of_group("tag.embedding.alibi") == 0
    assert colour_of_group("tag.embedding.rope(base=129)") == 0


@given(st.lists(names, unique=True, min_size=1, max_size=len(COLOURS)))
def test_lines_have_different_colours_and_look_as_before(lines: list[str]) -> None:
    tags = curve_tags(lines)
    assert [tag.rstrip(UNSEEN) for tag in tags.values()] == lines
    assert len({colour_of_line(tag) for tag in tags.values()}) == len(lines)


def test_an_embedding_has_one_colour_in_every_chart() -> None:
    alone = curve_tags(["fope"])["fope"]
    assert curve_tags(["new", "nope", "fope", "rope"])["fope"] == alone
    assert colour_of_line(alone) == COLOURS[1]


def test_more_lines_than_colours_share_them_evenly() -> None:
    tags = curve_tags(f"line {i}" for i in range(2 * len(COLOURS)))
    drawn = [colour_of_line(tag) for tag in tags.values()]
    assert {drawn.count(colour) for colour in COLOURS} == {2}
