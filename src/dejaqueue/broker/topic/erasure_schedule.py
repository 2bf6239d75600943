"""Has journals let go of what has been done for long, as `journal.erase_ms_max` says.

Room: broker. On a thread of its own, while the setting asks for it.
Holds: a row is gone within the time of the setting after all are done with it, if partitions take
no longer than a quarter of that to copy what is live beside it.
See: journal/interface.py, `press_dead`; broker/calls/erasure.py for what is erased at once;
docs/guides/erasure.md.
"""

from __future__ import annotations

import logging
from typing import Final

from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import BadRequest, DejaQError
from dejaqueue.journal.interface import JournalStore
from dejaqueue.settings import JournalSettings

log = logging.getLogger("dejaqueue.broker")

TURNS: Final = 4
"""So often within the time it is looked; what has been dead for two turns is to go. A third one
passes before a death is seen, and the fourth is for the copying."""


def check_bound(settings: JournalSettings, store: JournalStore) -> None:
    """Refuse a bound of erasure where the journals cannot keep it.

    Raises:
        BadRequest.
    """
    if settings.erase_ms_max and not store.erases:
        limit = "0 where records lie beside those of other partitions, as in a bucket"
        raise BadRequest("journal.erase_ms_max", limit, settings.erase_ms_max)


class ErasureSchedule:
    """Presses journals by the clock."""

    def __init__(self, settings: JournalSettings, clock: Clock, store: JournalStore) -> None:
        self._settings, self._clock, self._store = settings, clock, store
        self._wake = Wake()
        self._is_stopping = False

    def run(self) -> None:
        """Until `stop`."""
        while not self._is_stopping:
            turn_ms = max(self._settings.erase_ms_max // TURNS, 1)
            if self._settings.erase_ms_max:
                try:
                    self._store.press_dead(self._clock.now_us() // 1_000, 2 * turn_ms)
                except DejaQError as failure:
                    log.warning("what is done stays in journals for now: %s", failure)
                except Exception:  # our bug: the next turn may do it
                    log.exception("what is done stays in journals for now")
            self._clock.wait_until(self._clock.now_us() + turn_ms * 1_000, self._wake)

    def stop(self) -> None:
        """Press nothing any more. Any thread; twice is fine."""
        self._is_stopping = True
        self._wake.ring()
