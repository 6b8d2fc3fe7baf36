"""The links from a report's numbers to the runs of an experiment tracker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RunLinks:
    """The MLflow run of each stage and the address of its page, by the stage's key.

    A stage may lack either of them.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)


NO_LINKS = RunLinks()
