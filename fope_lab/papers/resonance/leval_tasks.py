"""L-Eval's closed-ended tasks: their files and questions, and exact match, in [0, 1].

An et al., arXiv 2307.11088; https://github.com/OpenLMLab/LEval, Evaluation/auto_eval.py and em.py.
A task is one file with a JSON object on each line, which `datasets` reads line by line. It can't
load L-Eval by name, since this is published with a loading script, which `datasets` no longer runs.
What an answer is in what a model wrote is found as in L-Eval's scripts, whims included: an answer
that names no option counts as A, and one that is empty as an incomplete choice.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fope_lab.config.problems import Problem
from fope_lab.data.corpora.files import file_sha256
from fope_lab.data.corpora.hub import HubOrFolder
from fope_lab.data.problems import DataError

DATASET = "L4NLP/LEval"
ON_HUB = "hf://datasets/{dataset}@{revision}/LEval/Exam/{name}"
PLACES = ("", "LEval/Exam", "LEval-data/Closed-ended-tasks")
"""The subfolders in which a local folder may have the files: none, as on the hub, as on GitHub."""
MAX_NEW_TOKENS = 512
"""The limit on generated tokens, the same for every task."""
PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")
OPTIONS = "ABCD"
INCOMPLETE = 0.25
"""The score of a choice of options that lacks some of the right ones."""
CODE_PHRASES = (
    "will be",
    "of the code",
    "is",
    "would be",
    "the value of",
    "the result of",
    "printed",
)

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
class TaskFiles(HubOrFolder):
    """The files of L-Eval: in a local folder each in one of PLACES, on the hub at `on_hub`, an
    address in the form that `datasets` accepts."""

    dataset: str
    revision: str | None = None
    on_hub: str = ON_HUB

    def local_file(self, name: str) -> Path:
        """Return the file of that name in the folder. Raises DataError if none or several exist."""
        tried = [Path(self.dataset, place, name) for place in PLACES]
        existing = [path for path in tried if path.is_file()]
        if len(existing) == 1:
            return existing[0]
        none, several = " nor ".join(map(str, tried)), " and ".join(map(str, existing))
        message = f"found both {several}" if existing else f"found neither {none}"
        raise DataError(Problem(("dataset",), message))

    def identity(self, names: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of each local file; the hub's files are known by their revision.

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


def checked(
    row: Mapping[str, Any], field: str, where: str, needs: str, fits: Callable[[Any], bool]
) -> Any:
    """Return a field of a row. Raises DataError, which names the row, unless the field `fits`."""
    if field not in row:
        raise DataError(f"{where} has no field {field} (it has: {', '.join(sorted(row))})")
    if not fits(row[field]):
        raise DataError(f"{where}: {field} is {str(row[field])[:80]!r}, needs {needs}")
    return row[field]


@dataclass(frozen=True)
class LEvalTask:
    """L-Eval's definition of a task: `question` is a template for a document and an instruction.

    `lead` begins the answer. A document that is too long is cut to its head or tail, as `keep`
    says. `closed` says whether Llama 2's format closes the instruction before the answer. With
    `fact`, the question is asked a second time, without the document, about the real world.
    """

    metric: Literal["choice", "choices", "number", "output", "judgement"]
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
}
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
    return f"{task}.jsonl"


def read_questions(files: TaskFiles, task: str) -> Iterator[LEvalQuestion]:
    """Yield the questions of a task, document by document.

    Raises DataError, with file and line, if a question is not in L-Eval's format.
    """
    for where, row in files.rows(file_of(task)):
        document = checked(row, "input", where, "text", lambda value: isinstance(value, str))
        instructions, answers = (
            checked(row, name, where, "a list of texts", _are_texts)
            for name in ("instructions", "outputs")
        )
        if len(instructions) != len(answers):
            raise DataError(f"{where}: {len(instructions)} instructions, {len(answers)} outputs")
        for instruction, answer in zip(instructions, answers, strict=True):
            if not answer.strip() or (TASKS[task].fact and "[fact:" not in answer.lower()):
                needs = "True or False and [fact: True or False]" if TASKS[task].fact else "text"
                raise DataError(f"{where}: an output is {answer!r}, needs {needs}")
            yield LEvalQuestion(document, instruction, answer)


def _are_texts(value: Any) -> bool:
    return bool(value) and isinstance(value, list) and all(isinstance(v, str) for v in value)


def exact_match(prediction: str, answer: str) -> float:
    """1 for the same options or number, or if the prediction, a line, holds the answer: neither
    case nor spaces count."""
    wanted = _bare(answer)
    if all(char in OPTIONS for char in wanted):
        found = _bare(prediction)
        return 1.0 if found == wanted else INCOMPLETE if set(found) <= set(wanted) else 0.0
    try:
        return float(float(prediction) == float(answer))
    except ValueError:
        return float(_squeezed(answer) in _squeezed(prediction))


def choice(text: str, answer: str) -> float:
    """One option of A to D: the first that is written."""
    found = text if text in OPTIONS else next((char for char in text if char in OPTIONS), "A")
    return exact_match(found, _right_options(answer))


def choices(text: str, answer: str) -> float:
    """Several options: those that the text begins with, or else all capitals that stand before
    a space, a full stop or a bracket."""
    return exact_match(text if text in OPTIONS else _options(text), _right_options(answer))


def number(text: str, answer: str) -> float:
    """The number after "The answer is", or else the last one of the first paragraph."""
    return exact_match(_number(text), _number(answer))


def output(text: str, answer: str) -> float:
    """What a program prints: it must be after "the final output", or else in the end."""
    text = _code(text)
    for phrase in CODE_PHRASES:
        text = text.replace(phrase, "")
    words = len(answer.split()) + 3
    _, said, after = text.rpartition("the final output")
    parts = re.split(r"\s+", after if said else text)
    return exact_match(" ".join(parts[:words] if said else parts[-words:]), _code(answer))


def judgement(text: str, answer: str) -> float:
    """True or false: the first of either that is written."""
    return exact_match(_verdict(text), answer)


METRICS: Mapping[str, Callable[[str, str], float]] = {
    "choice": choice,
    "choices": choices,
    "number": number,
    "output": output,
    "judgement": judgement,
}
"""Of what a model wrote and the right answer: a score."""


def scores(task: str, written: Sequence[str], answer: str) -> list[float]:
    """The score of each text that a model wrote. The second is about the fact, where it is asked
    for: the answer is then `True [fact: False]`, say."""
    answers = [answer]
    if TASKS[task].fact:
        story, _, fact = answer.lower().partition("[fact:")
        answers = [story.strip(), fact[:-1].strip()]
    score = METRICS[TASKS[task].metric]
    return [score(text, one) for text, one in zip(written, answers, strict=True)]


def _right_options(answer: str) -> str:
    """The options of a right answer; A if it names none."""
    return re.sub("[^A-D]", "", answer.split(maxsplit=1)[0]) or "A"


def _bare(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", text.translate(PUNCTUATION)).split())


def _squeezed(text: str) -> str:
    return text.lower().replace(" ", "")


def _options(text: str) -> str:
    begins = re.match(f"[{OPTIONS}]*", text)
    assert begins is not None  # it may be empty
    first = begins.group()
    if len(first) > 1:
        return "".join(sorted(set(first)))
    later = re.findall(r"[A-Z](?=[\s.)])", text[len(first) :].split("Question", maxsplit=1)[0])
    return "".join(sorted({char for char in [*first, *later] if char in OPTIONS})) or "A"


def _number(text: str) -> str:
    said = re.search(r"The answer is (\S+)", text)
    if said:
        word = said.group(1)
    else:
        words = reversed(text.split("\n\n", maxsplit=1)[0].split(" "))
        word = next((one for one in words if any(map(str.isdigit, one))), "")
    return "".join(char for char in word.split(".")[0] if char.isdigit())


def _code(text: str) -> str:
    text = re.sub(r"\s+", " ", text)
    for mark in (",", "'", "\\", ".0"):
        text = text.replace(mark, "")
    return text.replace("] [", "][").replace("[ [", "[[").replace("] ]", "]]")


def _verdict(text: str) -> str:
    for word in text.lower().split():
        for verdict in ("true", "false"):
            if verdict in word:
                return verdict
    return "<error>"
