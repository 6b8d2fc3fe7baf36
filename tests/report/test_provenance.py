"""What a report says of the code that made its stages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fope_lab.report.results.axes import unique_endings

PARTS = st.sampled_from(["a", "b", "base.py", "loop.py"])
PATHS = st.sets(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=8)


def test_files_of_one_name_are_told_apart() -> None:
    paths = ["fope_lab/tasks/base.py", "fope_lab/stages/base.py", "fope_lab/stages/metric.py"]
    endings = unique_endings({path: path.split("/") for path in [*paths, "pretrain"]})
    assert ["/".join(ending) for ending in endings.values()] == [
        "tasks/base.py",
        "stages/base.py",
        "metric.py",
        "pretrain",
    ]


@given(PATHS)
def test_no_two_files_have_one_name(paths: set[str]) -> None:
    endings = unique_endings({path: path.split("/") for path in paths})
    names = {path: "/".join(ending) for path, ending in endings.items()}
    assert len(set(names.values())) == len(paths)
    assert all(path == name or path.endswith(f"/{name}") for path, name in names.items())
