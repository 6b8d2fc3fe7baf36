"""Numbers in files of a bounded size are the numbers that were written, wherever one reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.config.atomic_files import sha256_file
from fope_lab.data.packing import ShardedArray, ShardWriter, map_shard

DTYPE = np.dtype(np.uint16)


def written(folder: Path, parts: list[list[int]], length: int) -> tuple[ShardedArray, list[int]]:
    """The sequence of some appended arrays, and the sizes of its files."""
    with ShardWriter(folder, "x", DTYPE, length) as writer:
        for part in parts:
            writer.append(np.array(part, np.int64))
    for shard in writer.shards:
        assert sha256_file(folder / shard["file"]) == shard["sha256"]
    files = [map_shard(folder, one, DTYPE) for one in writer.shards]
    return ShardedArray(files, DTYPE), [one["length"] for one in writer.shards]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 65_535), max_size=12), max_size=6),
    st.integers(1, 9),
    st.data(),
)
def test_slices_and_windows_are_those_of_one_array(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[list[int]],
    length: int,
    data: st.DataObject,
) -> None:
    numbers, sizes = written(tmp_path_factory.mktemp("shards"), parts, length)
    whole = np.array([number for part in parts for number in part], DTYPE)
    assert len(numbers) == len(whole) == sum(sizes)
    assert all(size == length for size in sizes[:-1])
    places = st.none() | st.integers(-len(whole) - 2, len(whole) + 2)
    start, stop = data.draw(places), data.draw(places)
    found = numbers[start:stop]
    assert found.dtype == DTYPE
    assert found.tolist() == whole[start:stop].tolist()
    size = data.draw(st.integers(0, len(whole)))
    starts = data.draw(st.lists(st.integers(0, len(whole) - size), max_size=4))
    windows = numbers.windows(np.array(starts, np.int64), size)
    assert windows.dtype == np.int64
    assert windows.tolist() == [whole[one : one + size].tolist() for one in starts]
    first = data.draw(st.integers(0, len(whole) + 2))
    last = data.draw(st.none() | st.integers(0, len(whole) + 2))
    assert numbers.part(first, last)[:].tolist() == whole[first:last].tolist()


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    numbers, _ = written(tmp_path, [[1, 2, 3]], 2)
    with pytest.raises(IndexError, match="found 2 to 4, needs 0 to 3"):
        numbers.windows(np.array([2]), 2)
    with pytest.raises(IndexError, match="found -1 to 1, needs 0 to 3"):
        numbers.windows(np.array([-1]), 2)
    with pytest.raises(IndexError, match="a step of 2"):
        numbers[::2]


def test_reading_does_not_change_the_files(tmp_path: Path) -> None:
    numbers, _ = written(tmp_path, [[1, 2, 3]], 2)
    numbers[:2][:] = 9
    numbers.windows(np.array([0]), 2)[:] = 9
    assert numbers[:].tolist() == [1, 2, 3]
