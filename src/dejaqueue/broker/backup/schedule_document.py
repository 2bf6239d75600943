"""ScheduleDocument: when a store's backups were last looked after: a document of the store.

    {"verified_ms": 1795490189219, "swept_ms": 1795490189219, "is_damaged": false}

Room: broker. Reads and writes one document, on the thread of the schedule.
Holds: times count over restarts, so a broker that is started anew each day reads its backups back,
too; that a backup is damaged is remembered until one was stored anew.
See: schedule.py.
"""

from __future__ import annotations

import json
from typing import Any, Final

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import JournalStore

DOCUMENT: Final = "backup-schedule"


class ScheduleDocument:
    """What the schedule of a store remembers.

    Args:
        now_ms: from when on it counts, if nothing was noted yet.

    Attributes:
        is_damaged: what was read back last was not whole.

    Raises:
        JournalDamaged: the document is not what was stored. Unavailable.
    """

    def __init__(self, journals: JournalStore, now_ms: int) -> None:
        self._journals = journals
        text = journals.load_document(DOCUMENT)
        try:
            values: dict[str, Any] = {} if text is None else json.loads(text)
            self._verified_ms = int(values.get("verified_ms", now_ms))
            self._swept_ms = int(values.get("swept_ms", now_ms))
            self.is_damaged = bool(values.get("is_damaged", False))
        except (ValueError, TypeError, AttributeError) as wrong:
            raise JournalDamaged(f"document {DOCUMENT}: {wrong!r}") from wrong
        if text is None:
            self._save()

    def is_verification_due(self, now_ms: int, interval_ms: int) -> bool:
        """Whether the newest backup is to be read back; interval 0 = never."""
        return bool(interval_ms) and not 0 <= now_ms - self._verified_ms < interval_ms

    def is_sweep_due(self, now_ms: int, interval_ms: int) -> bool:
        """Whether pieces that no backup names are to be looked for."""
        return not 0 <= now_ms - self._swept_ms < interval_ms

    def verified(self, now_ms: int, *, is_damaged: bool) -> None:
        """Note what was found when the newest one was read back."""
        self._verified_ms, self.is_damaged = now_ms, is_damaged
        self._save()

    def swept(self, now_ms: int) -> None:
        """Note that pieces were looked for."""
        self._swept_ms = now_ms
        self._save()

    def stored_anew(self) -> None:
        """Note that there is a backup that has nothing of the damaged ones."""
        self.is_damaged = False
        self._save()

    def _save(self) -> None:
        values = {
            "verified_ms": self._verified_ms,
            "swept_ms": self._swept_ms,
            "is_damaged": self.is_damaged,
        }
        self._journals.store_document(DOCUMENT, json.dumps(values))
