"""A store at one moment, for readers that ask several things of each stage."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from fope_lab.store.folder import StageFolder, StageReading
from fope_lab.store.root import Store


@dataclass(frozen=True)
class StoreSnapshot(Store):
    """A store of which each stage is read once, when it is first asked for.

    What changes in a stage afterwards is seen by the next snapshot. Nothing is written through it.
    """

    @classmethod
    def of(cls, store: Store) -> StoreSnapshot:
        """A snapshot of a store, or the store itself if it is one already."""
        return store if isinstance(store, cls) else cls(store.root)

    def folder(self, kind: str, key: str) -> StageFolder:
        """The folder of a stage as it is now; later calls give the same reading of it."""
        place = kind, key
        if place not in self._folders:
            self._folders[place] = StageReading(self.root / kind / key)
        return self._folders[place]

    @functools.cached_property
    def _folders(self) -> dict[tuple[str, str], StageFolder]:
        return {}
