"""MMLU (Hendrycks et al., arXiv 2009.03300) in its four groups of subjects.

The choices are the texts of the answers or, in tasks called `mc`, letters after a list of them.
Questions are asked alone, after an instruction and five solved examples (`5shot`), or in seven
variations (`var`): alone, after the instruction, and after one to five solved examples too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fope_lab.data.benchmarks.downstream.base import (
    DownstreamQuestion,
    DownstreamTask,
    choices,
    documents,
)
from fope_lab.data.benchmarks.downstream.documents import PER_CHARACTER

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
