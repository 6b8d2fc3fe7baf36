"""Memory that a step frees and takes again."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from trainers.optimizer import kept_memory

SCRIPT = """
import resource, torch
from trainers.optimizer import kept_memory

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)  # 64 MiB, 16,384 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1])

new_pages()
again = new_pages()
with kept_memory(torch.device("cpu")):
    first, *_, kept = [new_pages() for _ in range(30)]  # aligned, one may not fit where one was
    held = resident()
given_back = held - resident()
later = [torch.ones(2**24) for _ in range(4)]  # such as an evaluation's
held = resident()
del later
print(again, first, kept, given_back, held - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_a_large_block_keeps_its_pages_until_the_training_ends() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True)
    again, first, kept, given_back, given_later = map(int, ran.stdout.split())
    pages = 2**26 // 4096
    assert again > pages / 100 or first > pages / 100, "the system gives pages, or huge ones"
    assert kept < 100
    assert given_back > 0.9 * pages
    assert given_later > 0.9 * 3 * pages, "one of the four may lie in a gap that the training left"


def test_another_device_leaves_the_allocator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: pytest.fail("called"))
    with kept_memory(torch.device("cuda")):
        pass
