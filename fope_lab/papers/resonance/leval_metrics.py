"""L-Eval's exact match of its closed-ended tasks, in [0, 1].

An et al., arXiv 2307.11088; https://github.com/OpenLMLab/LEval, Evaluation/auto_eval.py and em.py.
What an answer is in what a model wrote is found as there, whims included: an answer that names no
option counts as A, and one that is empty as an incomplete choice.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence

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

AnswerScore = Callable[[Sequence[str], str], list[float]]
"""Of what a model wrote (the second text being about the fact, where it is asked for) and the right
answer: a score for each thing asked."""


def exact_match(prediction: str, answer: str) -> float:
    """1 for the same options or number, or if a line of the prediction holds the answer.

    The line is the first one of at least two characters; neither case nor spaces count.
    """
    wanted = _bare(answer)
    if all(char in OPTIONS for char in wanted):
        found = _bare(prediction)
        return 1.0 if found == wanted else INCOMPLETE if set(found) <= set(wanted) else 0.0
    try:
        return float(float(prediction) == float(answer))
    except ValueError:
        line = next((one for one in prediction.split("\n") if len(one) > 1), prediction)
        return float(_squeezed(answer) in _squeezed(line))


def choice(written: Sequence[str], answer: str) -> list[float]:
    """One option of A to D: the first that is written."""
    [text] = written
    found = text if text in OPTIONS else next((char for char in text if char in OPTIONS), "A")
    return [exact_match(found, right_options(answer))]


def choices(written: Sequence[str], answer: str) -> list[float]:
    """Several options: those that the text begins with, or else all capitals that stand before
    a space, a full stop or a bracket."""
    [text] = written
    return [exact_match(text if text in OPTIONS else _options(text), right_options(answer))]


def number(written: Sequence[str], answer: str) -> list[float]:
    """The number after "The answer is", or else the last one of the first paragraph."""
    [text] = written
    return [exact_match(_number(text), _number(answer))]


def output(written: Sequence[str], answer: str) -> list[float]:
    """What a program prints: it must be after "the final output", or else in the end."""
    [text] = written
    text = _code(text)
    for phrase in CODE_PHRASES:
        text = text.replace(phrase, "")
    words = len(answer.split()) + 3
    _, said, after = text.rpartition("the final output")
    parts = re.split(r"\s+", after if said else text)
    return [exact_match(" ".join(parts[:words] if said else parts[-words:]), _code(answer))]


def judgement(written: Sequence[str], answer: str) -> list[float]:
    """True or false in the story, and true or false in the world: the first of either that is
    written. The answer is `True [fact: False]`, say."""
    story, _, fact = answer.lower().partition("[fact:")
    wanted = (story.strip(), fact[:-1].strip())
    return [exact_match(_verdict(text), one) for text, one in zip(written, wanted, strict=True)]


def contained(written: Sequence[str], answer: str) -> list[float]:
    """The answer as it is."""
    [text] = written
    return [exact_match(text, answer)]


METRICS: Mapping[str, AnswerScore] = {
    "choice": choice,
    "choices": choices,
    "number": number,
    "output": output,
    "judgement": judgement,
    "contained": contained,
}


def right_options(answer: str) -> str:
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
