"""StandbyRecord: what a data directory knows of being a standby's, as a document of its store.

Room: broker. Reads and writes one document.
Holds: a directory that was filled by half is known as such, and filled anew; one that became
active, or was replaced, stays that.
See: standby.py; journal/interface.py, DOCUMENTS.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import JournalStore

DOCUMENT: Final = "standby"


class StandbyState(StrEnum):
    """What a directory is."""

    FILLING = "filling"
    """What is in it is not whole: it is emptied and filled again."""
    FOLLOWING = "following"
    PROMOTING = "promoting"
    """The fence may be there: the promotion goes on."""
    ACTIVE = "active"
    REPLACED = "replaced"
    """Of a broker whose place a standby took."""


@dataclass(frozen=True, slots=True)
class StandbyRecord:
    """The document.

    Attributes:
        id: the standby's.
        state: as above.
        store, chain: what is followed, as in manifests.
        strands: of each strand, by its name among chains, the number of a piece up to which
            nothing is needed any more, and that one's digest; "" = it is not known.
        logs: up to where entries of each log are applied, at least.
        at_ms: as of when it is with them, UTC.
        data_keys: wrapped keys that pieces had up to there, as in manifests.
        fence: text of the fence of who took this one's place.
        is_astray: it cannot go on from here: it begins anew with a newer backup.
    """

    id: str
    state: StandbyState
    store: str = ""
    chain: str = ""
    strands: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    logs: Mapping[str, int] = field(default_factory=dict)
    at_ms: int = 0
    data_keys: Mapping[str, str] = field(default_factory=dict)
    fence: str = ""
    is_astray: bool = False

    def save(self, store: JournalStore) -> None:
        """Store it durably. Raises ResourceExhausted, Unavailable."""
        store.store_document(DOCUMENT, json.dumps(asdict(self)))

    @staticmethod
    def load(store: JournalStore) -> StandbyRecord | None:
        """What a store has; None = it never was a standby's. Raises JournalDamaged, Unavailable."""
        text = store.load_document(DOCUMENT)
        if text is None:
            return None
        try:
            values: dict[str, Any] = json.loads(text)
            strands = {
                str(name): (int(number), str(digest))
                for name, (number, digest) in values.get("strands", {}).items()
            }
            state = StandbyState(values["state"])
            return StandbyRecord(**values | {"state": state, "strands": strands})
        except (ValueError, TypeError, KeyError, AttributeError) as wrong:
            raise JournalDamaged(f"document {DOCUMENT}: {wrong!r}") from wrong
