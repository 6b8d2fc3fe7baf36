"""The eight algorithmic tasks of Huang et al., "A Formal Framework for Understanding Length
Generalization in Transformers", arXiv 2410.02140, drawn as in their released code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from fope_lab.data.tasks.algorithmic.arithmetic import Addition, Parity
from fope_lab.data.tasks.algorithmic.copying import RepeatCopy, Sort, UniqueCopy
from fope_lab.data.tasks.algorithmic.majority import BinMajority, BinMajorityInterleave, Majority
from fope_lab.data.tasks.algorithmic.subtask import AlgorithmicSubtask

Subtask = Literal[
    "addition",
    "bin_majority",
    "bin_majority_interleave",
    "majority",
    "parity",
    "repeat_copy",
    "sort",
    "unique_copy",
]
SUBTASK_DOC = (
    "What the answer to an input is. bin_majority: the more frequent of two bits. majority: the"
    " most frequent letter. bin_majority_interleave: the majorities of three strings of bits that"
    " take turns. unique_copy: the input, of different symbols. repeat_copy: the input, of two"
    " symbols. sort: the input in order. parity: whether the number of ones is even. addition: the"
    " sum of two binary numbers."
)
"""What an option of this type means."""
SUBTASKS: Mapping[str, AlgorithmicSubtask] = {
    subtask.name: subtask
    for subtask in (
        Addition(),
        BinMajority(),
        BinMajorityInterleave(),
        Majority(),
        Parity(),
        RepeatCopy(),
        Sort(),
        UniqueCopy(),
    )
}
"""The eight tasks, by the names that a sweep file gives them."""
assert set(SUBTASKS) == set(get_args(Subtask))
