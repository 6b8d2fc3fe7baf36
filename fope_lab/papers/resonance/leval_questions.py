"""L-Eval's questions, and the files that they are in on the hub or in a local folder.

A task is one file with a JSON object on each line, which `datasets` reads line by line. It can't
load L-Eval by name, since this is published with a loading script, which `datasets` no longer runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fope_lab.config.problems import Problem
from fope_lab.data.corpora.hub import HubOrFolder
from fope_lab.data.corpora.local import file_sha256
from fope_lab.data.problems import DataError


@dataclass(frozen=True)
class TaskFiles(HubOrFolder):
    """The files of a benchmark.

    A local folder has each file in one of its subfolders `places`; on the hub, `on_hub` is the
    template of a file's address in the form that `datasets` accepts.
    """

    dataset: str
    revision: str | None
    on_hub: str
    places: tuple[str, ...]

    def local_file(self, name: str) -> Path:
        """Return the file of that name in the folder. Raises DataError if none or several exist."""
        tried = [Path(self.dataset, place, name) for place in self.places]
        existing = [path for path in tried if path.is_file()]
        if len(existing) == 1:
            return existing[0]
        message = (
            f"found neither {' nor '.join(map(str, tried))}"
            if not existing
            else f"found both {' and '.join(map(str, existing))}"
        )
        raise DataError(Problem(("dataset",), message))

    def identity(self, names: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of each local file; nothing for files on the hub, which the dataset's
        name and revision identify.

        Raises DataError if a file does not exist or can't be read.
        """
        if not self.is_local:
            return {}
        return {name: file_sha256(self.local_file(name)) for name in names}

    def rows(self, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the objects of a file in order, each after its place for errors: file and line.

        Raises DataError if the file can't be read.
        """
        import datasets

        place = (
            str(self.local_file(name))
            if self.is_local
            else self.on_hub.format(dataset=self.dataset, revision=self.revision, name=name)
        )
        try:
            lines = datasets.load_dataset("json", data_files=place, split="train", streaming=True)
            for line, row in enumerate(lines, 1):
                yield f"{self.dataset}, {name}, line {line}", row
        except (OSError, ValueError, RuntimeError) as error:
            raise DataError(
                f"{place} can't be read: {error}. Without the hub, give a local folder in the same "
                "format."
            ) from error


def text_of(row: Mapping[str, Any], field: str, where: str) -> str:
    """Return a field of a row that must be text; `where` names the row in the DataError if not."""
    return _checked(row, field, where, "text", lambda value: isinstance(value, str))


def texts_of(row: Mapping[str, Any], field: str, where: str) -> tuple[str, ...]:
    """Return a field of a row that must be a non-empty list of texts. Raises DataError if not."""

    def fits(value: Any) -> bool:
        return bool(value) and isinstance(value, list) and all(isinstance(v, str) for v in value)

    return tuple(_checked(row, field, where, "a list of texts", fits))


def whole_number_of(row: Mapping[str, Any], field: str, where: str) -> int:
    """Return a field of a row that must be a whole number. Raises DataError if not."""
    return _checked(row, field, where, "a whole number", lambda value: type(value) is int)


def _checked(
    row: Mapping[str, Any], field: str, where: str, needs: str, fits: Callable[[Any], bool]
) -> Any:
    if field not in row:
        raise DataError(f"{where} has no field {field} (it has: {', '.join(sorted(row))})")
    if not fits(row[field]):
        raise DataError(f"{where}: {field} is {str(row[field])[:80]!r}, needs {needs}")
    return row[field]


DATASET = "L4NLP/LEval"
ON_HUB = "hf://datasets/{dataset}@{revision}/LEval/Exam/{name}"
PLACES = ("", "LEval/Exam", "LEval-data/Closed-ended-tasks")
"""The subfolders in which a local folder may have the files: none, as on the hub, as on GitHub."""
MAX_NEW_TOKENS = 512
"""The limit on generated tokens, the same for every task."""

ONE_OPTION = (
    "Now you are given a very long document. Please follow the instruction based on this document. "
    "For multi-choice questions, there is only a sinlge correct option. Please only provide the "
    "letter corresponding to the answer (like A or B) when answering. For other questions, please "
    "directly give the concise and accurate answer. "
)
EXAM = (
    "Document is as follows. {document} \nQuestion: {instruction}.  Please directly give answer "
    "without any additonal output or explanation "
)
CONTINUED = "{document}\n\n{instruction}"
ANSWER = "\nAnswer:"


@dataclass(frozen=True)
class LEvalTask:
    """L-Eval's definition of a task: `question` is a template for a document and an instruction.

    `lead` begins the answer. A document that is too long is cut to its head or tail, as `keep`
    says. `closed` says whether Llama 2's format closes the instruction before the answer. With
    `fact`, the question is asked a second time, without the document, about the real world.
    """

    metric: Literal["choice", "choices", "number", "output", "judgement", "contained"]
    instructions: str
    question: str = EXAM
    lead: str = ANSWER
    keep: Literal["head", "tail"] = "head"
    closed: bool = True
    fact: bool = False


TASKS: dict[str, LEvalTask] = {
    "coursera": LEvalTask(
        metric="choices",
        instructions="Now you are given a very long document. Please follow the instruction based "
        "on this document. For multi-choice questions, there could be a sinlge correct option or "
        "multiple correct options. Please only provide the letter corresponding to the answer "
        "(like A or AB) when answering. ",
    ),
    "gsm100": LEvalTask(
        metric="number",
        instructions="Given several question answer pairs, you need to follow a similar format to "
        "answer the last question. Make sure the response is end with The answer is _ . ",
        question=CONTINUED,
        lead="",
        closed=False,
    ),
    "quality": LEvalTask(metric="choice", instructions=ONE_OPTION),
    "tpo": LEvalTask(metric="choice", instructions=ONE_OPTION),
    "codeU": LEvalTask(
        metric="output",
        instructions="Now you are given a code base consisting of a large amount of functions and "
        "the corresponding comments. In the end, I will call some functions defined in the code "
        "base. Please carefully read these codes and comments and answer the question.",
        question=CONTINUED,
        lead="",
        keep="tail",
        closed=False,
    ),
    "sci_fi": LEvalTask(
        metric="judgement",
        instructions="Now you are given a scientific fiction. I will ask you some questions and "
        'the answer should be "True" or "False". Notice that you should answer the question based '
        "on the evidence in the document instead of your background knowledge.",
        fact=True,
    ),
    "topic_retrieval_longchat": LEvalTask(
        metric="contained",
        instructions="Below is a record of our previous conversation on many different topics. You "
        "are the ASSISTANT, and I am the USER. At the beginning of each topic, the USER will say "
        "'I would like to discuss the topic of <TOPIC>'. Memorize each <TOPIC>. At the end of the "
        "record, I will ask you to retrieve the first/second/third topic names. Now the record "
        "start. ",
        question=CONTINUED,
        lead="",
    ),
}
TABLE_2 = ("coursera", "gsm100", "quality", "tpo", "codeU", "sci_fi")
"""The tasks of Resonance RoPE's Table 2, which calls them Coursera, GSM, QuALITY, TOEFL, CodeU and
SFiction."""
OF_THE_STORY = "based on the world described in the document."
OF_THE_WORLD = "based on the real-world knowledge and facts up until your last training"
"""The phrase that replaces OF_THE_STORY in the question about the real world."""


@dataclass(frozen=True)
class LEvalQuestion:
    """A question about a document, with its answer."""

    document: str
    instruction: str
    answer: str

    @property
    def fact(self) -> str:
        """The question asked about the real world instead of the story, if the task has `fact`."""
        return self.instruction.replace(OF_THE_STORY, OF_THE_WORLD) + ANSWER


def file_of(task: str) -> str:
    """Return the name of a task's file."""
    return f"{task}.jsonl"


def task_files(dataset: str, revision: str | None) -> TaskFiles:
    """Return the files of L-Eval on the hub or in a local folder."""
    return TaskFiles(dataset, revision, ON_HUB, PLACES)


def read_questions(files: TaskFiles, task: str) -> Iterator[LEvalQuestion]:
    """Yield the questions of a task, document by document.

    Raises DataError, with file and line, if a question is not in L-Eval's format.
    """
    for where, row in files.rows(file_of(task)):
        document = text_of(row, "input", where)
        instructions, answers = (texts_of(row, name, where) for name in ("instructions", "outputs"))
        if len(instructions) != len(answers):
            raise DataError(f"{where}: {len(instructions)} instructions, {len(answers)} outputs")
        for instruction, answer in zip(instructions, answers, strict=True):
            if not answer.strip() or (TASKS[task].fact and "[fact:" not in answer.lower()):
                needs = "True or False and [fact: True or False]" if TASKS[task].fact else "text"
                raise DataError(f"{where}: an output is {answer!r}, needs {needs}")
            yield LEvalQuestion(document, instruction, answer)
