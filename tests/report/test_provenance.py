"""What a report says of the code that made its stages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fope_lab.report.provenance import shortest_names

PARTS = st.sampled_from(["a", "b", "base.py", "loop.py"])
PATHS = st.sets(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=8)


def test_files_of_one_name_are_told_apart() -> None:
    paths = ["fope_lab/tasks/base.py", "fope_lab/stages/base.py", "fope_lab/stages/metric.py"]
    assert list(shortest_names([*paths, "pretrain"]).values()) == [
        "tasks/base.py",
        "stages/base.py",
        "metric.py",
        "pretrain",
    ]


@given(PATHS)
def test_no_two_files_have_one_name(paths: set[str]) -> None:
    names = shortest_names(paths)
    assert len(set(names.values())) == len(paths)
    assert all(path == name or path.endswith(f"/{name}") for path, name in names.items())
