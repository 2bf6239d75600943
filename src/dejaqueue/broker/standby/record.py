"""StandbyRecord: what a data directory knows of being a standby's, as a document of its store.

Room: broker. Reads and writes one document.
Holds: a directory that was filled by half is known as such, and filled anew; one that became
active, or was replaced, stays that.
See: standby.py; journal/interface.py, DOCUMENTS.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
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
        number: all pieces of the chain up to this one are applied, at least; 0 = none is.
        previous: digest of that piece; "" = it is not known.
        at_ms: as of when it is with them, UTC.
        fence: text of the fence of who took this one's place.
    """

    id: str
    state: StandbyState
    store: str = ""
    chain: str = ""
    number: int = 0
    previous: str = ""
    at_ms: int = 0
    fence: str = ""

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
            return StandbyRecord(**values | {"state": StandbyState(values["state"])})
        except (ValueError, TypeError, KeyError) as wrong:
            raise JournalDamaged(f"document {DOCUMENT}: {wrong!r}") from wrong
