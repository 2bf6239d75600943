"""The id of a backup: when it was cut, and of which store of journals.

    20261124T031629.219Z-9f0c51d2a7e4b836-ffe1

Room: backup; pure.
Holds: an id comes behind that of the backup before in the alphabet, whatever the clock says; what
retention asks about a backup is in its id, so that a listing answers it.
See: archive.py, which lists them.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import NamedTuple

_FORM = re.compile(r"(\d{8}T\d{6}\.\d{3})Z-([0-9a-f]{16})-[0-9a-f]{4}(?:\+[0-9a-f]{4})*")


class IdFacts(NamedTuple):
    """What an id says.

    Attributes:
        store: of which journals the backup is.
        cut_ms: as of when, UTC; of one that was taken while the clock was behind that of the backup
            before, as of when that one was.
    """

    store: str
    cut_ms: int


def new_id(cut_ms: int, store: str, parent: str) -> str:
    """An id behind that of the backup before; "" = there is none."""
    moment = datetime.fromtimestamp(cut_ms / 1_000, UTC)
    text = moment.strftime("%Y%m%dT%H%M%S.") + f"{cut_ms % 1_000:03d}Z-{store}"
    text = f"{text}-{os.urandom(2).hex()}"
    return text if text > parent else f"{parent}+{os.urandom(2).hex()}"


def id_facts(backup: str) -> IdFacts | None:
    """What an id says; None = it is of an earlier version, and the manifest has to be read.

    >>> id_facts("20261124T031629.219Z-9f0c51d2a7e4b836-ffe1")
    IdFacts(store='9f0c51d2a7e4b836', cut_ms=1795490189219)
    >>> id_facts("20261124T031629.219Z-ffe1")
    """
    match = _FORM.fullmatch(backup)
    if match is None:
        return None
    moment = datetime.strptime(match[1], "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC)
    return IdFacts(match[2], round(moment.timestamp() * 1_000))
