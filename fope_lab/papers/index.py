"""The published tables and figures that can stand beside a sweep's own numbers, by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import core_schema

from fope_lab.config.problems import did_you_mean, name_list, shown

PAPERS = Path(__file__).parent


def paper_names() -> list[str]:
    """Every name, such as fope/table2."""
    files = sorted(PAPERS.rglob("*.yaml"))
    return [file.relative_to(PAPERS).with_suffix("").as_posix() for file in files]


def paper_path(name: str) -> Path:
    """The file that a name stands for."""
    return PAPERS / f"{name}.yaml"


@dataclass(frozen=True)
class NameOfPaper:
    """Annotation: a text that names one of the published tables and figures."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_after_validator_function(_known, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "enum": paper_names()}


def _known(name: str) -> str:
    names = paper_names()
    if name not in names:
        near = did_you_mean(name, names)
        raise ValueError(f"found {shown(name)}{near} (allowed: {name_list(names)})")
    return name
