"""CatalogueSlices: changes of a catalogue that several processes append to, as an archive has them.

Its journal is of records, so its entries are written once more as a log of segments has them, and
are called by their revisions.

Room: broker. One thread. Reads the journal besides the catalogue's own log, and writes nothing.
Holds: `tail` is of what was durable when it was asked for; a slice has each change behind `after`,
or it is refused: a snapshot of the catalogue may cover changes that were not archived yet.
See: strand_archiver.py, who archives them; archive_tail.py, `change`; catalogue/log.py.
"""

from __future__ import annotations

from dejaqueue.catalogue.log import JOURNAL
from dejaqueue.errors import Fenced, JournalDamaged
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.interface import Journal
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.journal.segments.log_turn import LogSlice
from dejaqueue.journal.segments.store import OWN_NAME


class CatalogueSlices:
    """The changes of a catalogue.

    Args:
        records: the store of its journal; closed with this.
        cipher: encrypts them; None = they are stored as they are.
    """

    def __init__(self, records: RecordJournalStore, cipher: Cipher | None) -> None:
        self._records, self._cipher = records, cipher
        self._journal: Journal | None = None

    def tail(self) -> int:
        """The last revision. Raises JournalDamaged, Unavailable."""
        if self._journal is not None:
            try:
                return self._journal.follow()
            except (Fenced, JournalDamaged):  # a snapshot covers what was dropped: open it again
                self._let_go()
        self._journal = self._records.open(JOURNAL, 0)
        return self._journal.tail

    def slice(self, after: int, last: int, byte_count_max: int) -> LogSlice:
        """Changes behind a revision, up to another one, as many as fit, and one at least.

        Raises:
            JournalDamaged: they were dropped. Unavailable.
        """
        assert self._journal is not None  # `last` came from `tail`
        pieces: list[bytes] = []
        at, byte_count = after, 0
        for position, epoch, entry in self._journal.scan(after):
            if position != at + 1:
                break
            encoded = entry_format.encode(
                entry, position, epoch, 0, at, (0, position), cipher=self._cipher
            )
            if pieces and byte_count + encoded.byte_count > byte_count_max:
                break
            pieces += [bytes(piece) for piece in encoded.pieces]
            byte_count += encoded.byte_count
            at = position
            if at == last:
                break
        if at == after:
            raise JournalDamaged(f"the catalogue: change {after + 1} was given back")
        return LogSlice(OWN_NAME, after, at, memoryview(b"".join(pieces)))

    def _let_go(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()

    def close(self) -> None:
        """Let go of everything; twice is fine."""
        self._let_go()
        self._records.close()
