"""CatalogueSlices: changes of a catalogue that several brokers append to, as an archive has them.

Its journal is of records, so its entries are written once more as a log of segments has them, and
are called by their revisions.

Room: broker. One thread. Reads the journal besides the catalogue's own log, and writes nothing.
Holds: `tail` is of what was durable when it was asked for; a slice has each change behind `after`,
or it is refused: a snapshot of the catalogue may cover changes that were not archived yet.
See: strand_archiver.py and record_archiver.py, who archive them; archive_tail.py, `change`;
catalogue/log.py.
"""

from __future__ import annotations

from collections.abc import Callable

from dejaqueue.broker.backup.record_slices import record_slice
from dejaqueue.errors import Fenced, JournalDamaged
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.interface import Journal
from dejaqueue.journal.segments.log_turn import LogSlice
from dejaqueue.journal.segments.store import OWN_NAME


class CatalogueSlices:
    """The changes of a catalogue.

    Args:
        open_journal: opens its journal once more.
        cipher: encrypts them; None = they are stored as they are.
        on_close: called when all is let go of.
    """

    def __init__(
        self,
        open_journal: Callable[[], Journal],
        cipher: Cipher | None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._open, self._cipher, self._on_close = open_journal, cipher, on_close
        self._journal: Journal | None = None

    def tail(self) -> int:
        """The last revision. Raises JournalDamaged, Unavailable."""
        if self._journal is not None:
            try:
                return self._journal.follow()
            except (Fenced, JournalDamaged):  # a snapshot covers what was dropped: open it again
                self._let_go()
        self._journal = self._open()
        return self._journal.tail

    def slice(self, after: int, last: int, byte_count_max: int) -> LogSlice:
        """Changes behind a revision, up to another one, as many as fit, and one at least.

        Raises:
            JournalDamaged: they were dropped. Unavailable.
        """
        assert self._journal is not None  # `last` came from `tail`
        bounds = after, last
        return record_slice(self._journal, OWN_NAME, 0, bounds, byte_count_max, self._cipher)

    def _let_go(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()

    def close(self) -> None:
        """Let go of everything; twice is fine."""
        self._let_go()
        self._on_close()
