"""The page of a paper: all that it shows and says, and where each of it is in the project."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from docs.generate.markdown import anchor, plain, table
from docs.generate.papers import FOLDER, Item, Paper, Statement, SweepPart, load_paper
from docs.generate.results import Result, all_results
from fope_lab.report.render.claims_view import count_words

MINIATURES = "mini/"


def page(name: str) -> str:
    """The page of a paper: an overview, a section for each item, and statements without a claim."""
    paper = load_paper(FOLDER / f"{name}.yaml")
    address = f"https://arxiv.org/abs/{paper.arxiv}"
    parts = [f"{plain(paper.title)}, [arXiv {paper.arxiv}]({address}).", _overview(paper)]
    parts += [_section(paper, item) for item in paper.items]
    if paper.statements:
        parts += ["## Statements without a claim", *map(_statement, paper.statements)]
    return "\n\n".join(parts)


def _overview(paper: Paper) -> str:
    rows = [
        (f"[{plain(item.item)}](#{anchor(item.item)})", plain(item.shows), state(item))
        for item in paper.items
    ]
    return table(("in the paper", "what it shows", "here"), rows)


def state(item: Item) -> str:
    """Whether an item was run, is ready to be, or is not there."""
    found = [_state(part) for part in item.parts]
    if item.analyses:
        found.append("an analysis of any checkpoint")
    if item.embeddings:
        found.append("an embedding" if len(item.embeddings) == 1 else "embeddings")
    return "; ".join(dict.fromkeys(found)) or "not here"


def _state(part: SweepPart) -> str:
    small = " in miniature" if part.file.startswith(MINIATURES) else ""
    if (result := _result(part)) is not None:
        link = f"[run{small}](../results.md#{anchor(result.report['sweep']['name'])})"
        return f"{link} with the settings of an older file" if any(result.other_stages) else link
    return f"ready{small} for {needs(part)}"


def needs(part: SweepPart) -> str:
    """What a machine must have to run a sweep, as far as its stages say."""
    stages = part.stages
    weights = sorted({_model(v) for s in stages for v in s.checkpoints.values() if "hf:" in v})
    gpus = max((getattr(getattr(s.spec, "resources", None), "gpus", 0) for s in stages), default=0)
    words = [f"{gpus:g} GPUs" if gpus > 1 else "a GPU" if gpus else "a CPU"]
    return " and ".join([*words, *([f"the weights of {' and '.join(weights)}"] if weights else [])])


def _model(reference: str) -> str:
    return reference.removeprefix("hf:").partition("@")[0]


def _result(part: SweepPart) -> Result | None:
    return next((result for result in all_results() if result.sweep == part.path), None)


def _section(paper: Paper, item: Item) -> str:
    parts = [f"## {item.item}", f"{plain(item.place)}. {plain(item.shows)}"]
    parts += [f"- {_link(part)}: {_state(part)}{_analyses(part)}" for part in item.parts]
    parts += [f"- Analysis [{name}](../reference/analyses.md#{name})" for name in item.analyses]
    parts += [f"- Embedding [{name}](../gallery/{name}.md)" for name in item.embeddings]
    text = "\n\n".join(parts[:2]) + "\n\n" + "\n".join(parts[2:])
    if item.differs:
        text += f"\n\n**What differs.** {plain(item.differs)}"
    if item.lacks:
        text += f"\n\n**What is not here.** {plain(item.lacks)}"
    return text.rstrip() + "".join(f"\n\n{each}" for each in _groups(paper, item))


def _link(part: SweepPart) -> str:
    stage = f", stage `{part.stage}`" if part.stage else ""
    return f"[`{part.path}`](../{part.path}){stage}"


def _analyses(part: SweepPart) -> str:
    """The analyses that the part runs, each with a link to its options."""
    found = (getattr(stage.spec, "analysis", None) for stage in part.stages)
    names = sorted({one.name for one in found if one is not None})
    links = ", ".join(f"[{name}](../reference/analyses.md#{name})" for name in names)
    return f" ({links})" if links else ""


def _groups(paper: Paper, item: Item) -> Iterator[str]:
    """Each sentence, with the claims that stand for it in every sweep of the item."""
    by_basis: dict[str, list[str]] = {}
    for part, group in paper.groups(item):
        note = f" {plain(group.note)}" if group.note and group.quote else ""
        verdicts = _verdicts(part, group.claims)
        line = f"- {_count(group.claims)} in [{part.file}](../{part.path}){verdicts}.{note}"
        where = f" ({plain(group.place)})" if group.place else ""
        words = f"“{plain(group.quote)}”{where}" if group.quote else plain(group.note or "")
        by_basis.setdefault(f"> {words}", []).append(line)
    for words, lines in by_basis.items():
        yield f"{words}\n\n" + "\n".join(lines)


def _count(claims: Iterable[str]) -> str:
    count = len(list(claims))
    return f"{count} claim{'' if count == 1 else 's'}"


def _verdicts(part: SweepPart, claims: Iterable[str]) -> str:
    """How often each verdict was given, where the sweep was run with these claims."""
    if (result := _result(part)) is None:
        return ""
    texts = set(claims)
    words = count_words(c["verdict"] for c in result.report["claims"] if c["text"] in texts)
    return f": {words}" if words else ""


def _statement(statement: Statement) -> str:
    words = f"> “{plain(statement.quote)}” ({plain(statement.place)})"
    return f"{words}\n\n{plain(statement.here)}"
