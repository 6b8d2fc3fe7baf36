"""How well a text answers a question, in [0, 1]: LongBench's metrics.

Bai et al., arXiv 2308.14508; https://github.com/THUDM/LongBench, metrics.py.
"""

from __future__ import annotations

import functools
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

AnswerScore = Callable[[str, str, Sequence[str]], float]
"""Takes a prediction, a right answer and all classes (if there are classes); returns a score."""

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalised(text: str) -> str:
    """Lower case, without ASCII punctuation and articles, words one space apart (SQuAD)."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def qa_f1(prediction: str, answer: str, classes: Sequence[str] = ()) -> float:
    """F1 of the words that two normalised texts have in common, each as often as in both."""
    found, wanted = normalised(prediction).split(), normalised(answer).split()
    common = sum((Counter(found) & Counter(wanted)).values())
    return 2 * common / (len(found) + len(wanted)) if common else 0.0


def classification(prediction: str, answer: str, classes: Sequence[str]) -> float:
    """1 for the right class, shared by all classes whose names the prediction holds.

    A name that is part of the right one's counts for nothing. (LongBench's script forgets to look
    at a name that comes right after such a one; TREC has no class that holds two others.)
    """
    named = [one for one in classes if one in prediction and (one == answer or one not in answer)]
    return 1 / len(named) if answer in named else 0.0


def rouge_l(prediction: str, answer: str, classes: Sequence[str] = ()) -> float:
    """F of the longest common subsequence of words, by the package rouge-score: lower case, letters
    and digits only, no stemming (Lin, "ROUGE", 2004)."""
    return float(_scorer().score(answer, prediction)["rougeL"].fmeasure)


@functools.cache
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=False)


def rouge_l_of_words(prediction: str, answer: str, classes: Sequence[str] = ()) -> float:
    """What LongBench's own numbers are, of the package rouge 1.0.1: sentences end at full stops, a
    word is what is between spaces, and of the subsequences that a sentence of one text has in
    common with one of the other, all different words are counted, once in the whole text.

    0 for an empty text. The package gives up where Python's stack ends, in sentences of about a
    thousand words, and LongBench counts that as 0; here they count like all others.
    """
    found, wanted = _sentences(prediction), _sentences(answer)
    if not found or not wanted:
        return 0.0
    common: set[str] = set()
    for one in wanted:
        for other in found:
            common |= _common_words(one, other)
    precision = len(common) / len({word for one in found for word in one})
    recall = len(common) / len({word for one in wanted for word in one})
    return 2 * precision * recall / (precision + recall + 1e-8)


def _sentences(text: str) -> list[list[str]]:
    return [" ".join(one.split()).split(" ") for one in text.split(".") if one]


def _common_words(one: Sequence[str], other: Sequence[str]) -> set[str]:
    """The words of a longest common subsequence; of several, the one that is found from the end by
    leaving out a word of `other` first."""
    longest = [[0] * (len(other) + 1)]
    for word in one:
        above, row = longest[-1], [0]
        for column, theirs in enumerate(other):
            row.append(above[column] + 1 if word == theirs else max(above[column + 1], row[-1]))
        longest.append(row)
    words, i, j = set(), len(one), len(other)
    while i and j:
        if one[i - 1] == other[j - 1]:
            words.add(one[i - 1])
            i, j = i - 1, j - 1
        elif longest[i - 1][j] > longest[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return words


ROUGES: Mapping[str, AnswerScore] = {"rouge-score": rouge_l, "rouge": rouge_l_of_words}
"""Rouge-L by the package that computes it so."""
