"""The attempts whose work is in the output of a stage: one, and those that it resumed from."""

from __future__ import annotations

from typing import Any

from fope_lab.store.lease import AttemptRecord, Attempts


def contributors(attempts: Attempts, token: int) -> list[AttemptRecord]:
    """The attempt `token`, the attempt whose checkpoint it resumed from, and so on, newest first.

    The list ends early where a record is missing.
    """
    found: list[AttemptRecord] = []
    while token and (record := attempts.record(token)) is not None:
        found.append(record)
        origin: Any = record.details.get("resumed_from")
        token = origin["token"] if origin and origin["token"] < token else 0
    return found


def device_of(record: AttemptRecord) -> str | None:
    """The device that an attempt recorded, or None if it recorded none."""
    device = (record.details.get("made_by") or {}).get("device")
    return None if device is None else str(device)
