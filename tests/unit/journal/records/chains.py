"""A chain of records as a writer makes them, for tests of who reads them."""

from __future__ import annotations

from collections.abc import Sequence

from dejaqueue.journal import format as entry_format
from dejaqueue.journal.format import Piece
from dejaqueue.journal.records.append_index import ReadCursor
from dejaqueue.journal.records.record import RecordHead, RecordKind, seal, split
from dejaqueue.testing.journal_conformance import make_ack

IDENTITY = 77


class Chain:
    """Records by number, one after the other; `stand` is where the next one goes."""

    def __init__(self) -> None:
        self.contents: dict[int, bytes] = {}
        self.stand = ReadCursor()
        self._append_id = 0

    def entries(self, counts: Sequence[int]) -> list[Piece]:
        """The bytes of entries with so many rows each, chained to what is there."""
        pieces: list[Piece] = []
        chain, tail = self.stand.entry_chain, self.stand.position - 1
        for place, rows in enumerate(counts, 1):
            one = entry_format.encode(make_ack(rows), tail + place, 1, chain, tail)
            chain = one.checksum
            pieces += one.pieces
        self._entry_chain = chain
        return pieces

    def append(
        self,
        counts: Sequence[int],
        *,
        parts: int = 1,
        written: int | None = None,
        head: dict[str, int] | None = None,
    ) -> int:
        """An append of so many entries, in so many records; the number of its first record.

        Args:
            written: of its records only the first so many; None = all.
            head: fields of the heads that are to be other ones.
        """
        pieces = self.entries(counts)
        byte_count = sum(len(piece) for piece in pieces)
        first, position = self.stand.number, self.stand.position
        self._append_id += 1
        bodies = split(pieces, -(-byte_count // parts))
        for part, body in enumerate(bodies[:written]):
            self._add(part, len(bodies), position, len(counts), byte_count, body, head or {})
        if written is None:
            self.stand = self.stand._replace(
                position=position + len(counts), entry_chain=self._entry_chain
            )
        return first

    def barrier(self) -> int:
        """A record without entries; its number."""
        self._append_id += 1
        first = self.stand.number
        self._add(0, 1, self.stand.position, 0, 0, [], {"kind": RecordKind.BARRIER})
        return first

    def _add(
        self,
        part: int,
        parts: int,
        position: int,
        entries: int,
        byte_count: int,
        body: list[Piece],
        other: dict[str, int],
    ) -> None:
        head = RecordHead(
            kind=RecordKind.ENTRIES,
            number=self.stand.number,
            identity=IDENTITY,
            append_id=self._append_id,
            part=part,
            parts=parts,
            position=position,
            entries=entries,
            byte_count=byte_count,
            previous=self.stand.chain,
            body_bytes=sum(len(piece) for piece in body),
        )._replace(**other)
        sealed = seal(head, body)
        self.contents[self.stand.number] = b"".join(sealed.pieces)
        self.stand = self.stand._replace(number=self.stand.number + 1, chain=sealed.checksum)
