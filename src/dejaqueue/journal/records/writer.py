"""Appending records, and finding out what became of an append whose answer was lost.

An append without an answer may have happened, may never happen, or may happen later. So the same
place is asked for again, with a record that has no entries (a barrier):

- the barrier gets the place: the append can never happen any more, and is made again behind it;
- the place is taken: what is there is read. The append's own id: so far it happened. A barrier of
  this search: it did not. Anything else: another owner wrote, Fenced;
- no answer again: the same question, until the server answers or patience ends.

Of an append of several records a beginning may be there: the question is then asked behind it.

Room: journal. One append at a time.
Holds: an append is made a second time only after a record stands where the first one would; where
the log stands is known, or nothing more is appended.
See: duties 3 to 5 of interface.py; reading.py for what is left of an append that did not happen.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

from dejaqueue.clock import Wake
from dejaqueue.errors import Fenced, JournalDamaged, Unavailable
from dejaqueue.journal.format import Piece
from dejaqueue.journal.records.append_index import ReadCursor
from dejaqueue.journal.records.concurrency import Concurrency
from dejaqueue.journal.records.interface import RecordLog
from dejaqueue.journal.records.reading import CheckedRecords
from dejaqueue.journal.records.record import (
    HEADER_BYTES,
    RecordHead,
    RecordKind,
    Sealed,
    seal,
    split,
)

_PAUSE_SECONDS: Final = 0.05
_PAUSE_SECONDS_MAX: Final = 1.0


class Landed(NamedTuple):
    """An append that happened.

    Attributes:
        number: of its first record.
        parts: its records.
        chain_before: checksum of the record before it.
        number_after, chain_after: where the next one goes.
    """

    number: int
    parts: int
    chain_before: int
    number_after: int
    chain_after: int


class RecordWriter:
    """What appends to one log.

    Args:
        stand: where the log ends.
        record_bytes_max: of one record, its header included.
        patience_seconds: how long the server is asked what became of an append.
        concurrency: how it waits.
        closing: rung when waiting has no sense any more.
    """

    def __init__(
        self,
        log: RecordLog,
        checked: CheckedRecords,
        stand: ReadCursor,
        record_bytes_max: int,
        patience_seconds: float,
        concurrency: Concurrency,
        closing: Wake,
    ) -> None:
        self._log, self._checked = log, checked
        self._body_bytes_max = record_bytes_max - HEADER_BYTES
        self._patience_seconds = patience_seconds
        self._clock, self._closing = concurrency.clock, closing
        self._number, self._chain = stand.number, stand.chain
        self._appending = concurrency.lock()
        self.unclear: str | None = None
        """Why nothing more can be appended."""
        self.questions = 0
        """Appends whose answer was lost; for metrics."""

    def append(
        self, pieces: Sequence[Piece], position: int, entries: int, byte_count: int
    ) -> Landed:
        """Append the bytes of entries, as many records as they need.

        Raises:
            Fenced, ResourceExhausted: nothing was appended.
            Unavailable: the outcome is unknown; nothing more can be appended.
            JournalDamaged: what stands there instead is not what anybody wrote.
        """
        if self.unclear is not None:
            raise Unavailable(self.unclear)
        with self._appending:
            return self._append(pieces, position, entries, byte_count)

    def go_on(self, stand: ReadCursor) -> None:
        """Append behind what others have appended, from now on."""
        with self._appending:
            self._number, self._chain = stand.number, stand.chain

    def check_owner(self) -> None:
        """From any thread: nobody else has appended, so far.

        Raises:
            Fenced, Unavailable.
        """
        with self._appending:
            last = self._log.last()
            if last != self._number - 1:
                raise Fenced(f"{self._checked.place}: another owner wrote record {last}")

    def _append(
        self, pieces: Sequence[Piece], position: int, entries: int, byte_count: int
    ) -> Landed:
        if not self._checked.identity:
            self._checked.identity = secrets.randbits(63) | 1
        deadline_us = self._clock.now_us() + int(self._patience_seconds * 1e6)
        bodies = split(pieces, self._body_bytes_max)
        while True:
            # A new one for each try, so that what is found at the server afterwards says which try
            # it came from.
            append_id = secrets.randbits(64)
            sealed = self._sealed(bodies, append_id, position, entries, byte_count)
            number, chain_before = self._number, self._chain
            try:
                self._log.append(number - 1, [one.pieces for one in sealed])
            except Unavailable:
                self.questions += 1
                if not self._happened(append_id, sealed, position, deadline_us):
                    continue
            self._number, self._chain = number + len(sealed), sealed[-1].checksum
            return Landed(number, len(sealed), chain_before, self._number, self._chain)

    def _sealed(
        self,
        bodies: list[list[Piece]],
        append_id: int,
        position: int,
        entries: int,
        byte_count: int,
    ) -> list[Sealed]:
        sealed: list[Sealed] = []
        chain = self._chain
        for part, body in enumerate(bodies):
            head = RecordHead(
                kind=RecordKind.ENTRIES,
                number=self._number + part,
                identity=self._checked.identity,
                append_id=append_id,
                part=part,
                parts=len(bodies),
                position=position,
                entries=entries,
                byte_count=byte_count,
                previous=chain,
                body_bytes=sum(len(piece) for piece in body),
            )
            sealed.append(seal(head, body))
            chain = sealed[-1].checksum
        return sealed

    # --- an answer was lost --------------------------------------------------------------------

    def _happened(
        self, append_id: int, sealed: list[Sealed], position: int, deadline_us: int
    ) -> bool:
        """True if the append happened; False if it never will, and the log ends behind a barrier.

        Raises:
            Fenced: another owner has the place. Unavailable: patience ended.
        """
        barriers: set[int] = set()
        landed, pause = 0, _PAUSE_SECONDS
        while True:
            number = self._number + landed
            chain = sealed[landed - 1].checksum if landed else self._chain
            barrier_id = secrets.randbits(64)
            barriers.add(barrier_id)
            barrier = self._barrier(number, barrier_id, position, chain)
            try:
                self._log.append(number - 1, [barrier.pieces])
            except Fenced:
                pass
            except Unavailable as silent:
                self._wait(pause, deadline_us, silent)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)
                continue
            else:
                self._number, self._chain = number + 1, barrier.checksum
                return False
            try:
                there = self._there(number, len(sealed) - landed)
            except Unavailable as silent:
                self._wait(pause, deadline_us, silent)
                continue
            except JournalDamaged as missing:
                self._check_overtaken(number + len(sealed) - landed, missing)
                raise
            for head, checksum in there:
                if landed < len(sealed) and checksum == sealed[landed].checksum:
                    landed += 1
                elif head.append_id in barriers:
                    self._number, self._chain = head.number + 1, checksum
                    return False
                else:
                    raise Fenced(f"{self._checked.place}: another owner wrote record {head.number}")
            if landed == len(sealed):
                return True
            if not there:  # fenced, and nothing to see yet
                self._wait(pause, deadline_us, None)

    def _there(self, number: int, count: int) -> list[tuple[RecordHead, int]]:
        """What stands in these places, as far as anything does."""
        last = self._log.last()
        end = min(number + count, last + 1)
        return [(record.head, record.checksum) for record in self._checked.read(number, end)]

    def _check_overtaken(self, end: int, missing: JournalDamaged) -> None:
        """What stood there may be gone because another owner needed it no more.

        Args:
            end: number behind the last record that may be ours.

        Raises:
            Unavailable: so it is, and whether the append happened is not to be known any more.
        """
        last = self._log.last()
        if last < end:
            return
        self.unclear = (
            f"{self._checked.place}: what became of an append at record {self._number} is not to "
            f"be found out: another owner wrote record {last}, and dropped older ones"
        )
        raise Unavailable(self.unclear) from missing

    def _barrier(self, number: int, barrier_id: int, position: int, chain: int) -> Sealed:
        return seal(
            RecordHead(
                kind=RecordKind.BARRIER,
                number=number,
                identity=self._checked.identity,
                append_id=barrier_id,
                part=0,
                parts=1,
                position=position,
                entries=0,
                byte_count=0,
                previous=chain,
                body_bytes=0,
            ),
            [],
        )

    def _wait(self, seconds: float, deadline_us: int, silent: Unavailable | None) -> None:
        until_us = self._clock.now_us() + int(seconds * 1e6)
        if until_us < deadline_us and not self._clock.wait_until(until_us, self._closing):
            return
        self.unclear = (
            f"{self._checked.place}: what became of an append at record {self._number} was not to "
            f"be found out: {silent or 'the server shows nothing there'}"
        )
        raise Unavailable(self.unclear) from silent
