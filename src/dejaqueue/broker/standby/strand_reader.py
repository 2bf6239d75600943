"""StrandReader: one strand of an archive, read piece by piece, and what of it is not applied yet.

An archive of one broker is one chain, which counts as the one strand that there is.

Room: broker. One thread.
Holds: each piece is compared with the one before; what is held are neighbours, in their order; a
piece that is not in memory any more is read again, and is what it was.
See: follower.py, which reads several and applies them; backup/strands.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final, NamedTuple

from dejaqueue.backup.log_chain import LogChain
from dejaqueue.backup.log_pieces import LogPiece, digest_of
from dejaqueue.errors import JournalDamaged

LATE_PIECES: Final = 8
"""Who is so many behind reads them ahead."""


class HeldPiece(NamedTuple):
    """A piece that is not applied yet, or not all of it.

    Attributes:
        bounds: of each of its slices: the log, behind which position it begins, its last one.
        piece: None = it is not in memory, and read again.
    """

    number: int
    digest: str
    bounds: tuple[tuple[str, int, int], ...]
    piece: LogPiece | None

    @property
    def byte_count(self) -> int:
        """Of what is in memory."""
        return 0 if self.piece is None else sum(len(one.content) for one in self.piece.slices)


class StrandReader:
    """Reads a strand.

    Args:
        number, previous: of the piece behind which it begins, and that one's digest; "" = it is not
            known.

    Attributes:
        number, previous: of the last piece of which, and of those before, nothing is needed any
            more.
        read: number of the last piece that was looked at.
        read_previous: its digest.
        held: those in between.
        fence: id of the standby that has ended the strand; "" = none has, as far as was read.
    """

    def __init__(self, chain: LogChain, number: int, previous: str) -> None:
        self.chain = chain
        self.number, self.previous = number, previous
        self.read, self.read_previous = number, previous
        self.held: deque[HeldPiece] = deque()
        self.fence = ""
        self._last: LogPiece | None = None
        """The last piece that was read, without its entries; None = it is not in memory."""
        self._had_more = False
        """Whether there was a piece when it was last looked for one."""

    def following(self, count_max: int) -> Iterator[tuple[LogPiece, str]]:
        """The pieces behind the last one that was read, and their digests, as far as there are any.
        Each is to be taken, or the reading ends there.

        Raises:
            JournalDamaged, Unavailable.
        """
        stored = None if self.fence else self.chain.stored(self.read + 1)
        had_more, self._had_more = self._had_more, stored is not None
        if stored is None:
            return
        yield self._checked(self.read + 1, stored)
        # Who keeps up finds nothing every other time, and need not ask how much there is.
        is_late = had_more and not self.fence
        if not is_late or self.chain.stored(self.read + LATE_PIECES) is None:
            return
        ahead = range(self.read + 1, self.read + count_max)
        for number, found in self.chain.stored_ahead(ahead):
            if found is None:
                return
            yield self._checked(number, found)

    def _checked(self, number: int, stored: bytes) -> tuple[LogPiece, str]:
        piece = self.chain.decode(number, stored)
        if self.read_previous and piece.previous != self.read_previous:
            raise JournalDamaged(f"{self.chain.path(number)}: does not follow the one before")
        return piece, digest_of(stored)

    def take(self, piece: LogPiece, digest: str, *, keeps: bool) -> None:
        """Hold the next piece; or end, if it says that a standby ended the strand.

        Args:
            keeps: in memory; else it is read again when it is applied.
        """
        if piece.fence:
            self.fence = piece.fence
            return
        bounds = tuple((one.log, one.after, one.last) for one in piece.slices)
        self.held.append(HeldPiece(piece.number, digest, bounds, piece if keeps else None))
        self.read, self.read_previous = piece.number, digest
        self._last = replace(piece, slices=())

    def contents(self, wanted: Sequence[HeldPiece]) -> Iterator[LogPiece]:
        """Held pieces, in their order. Raises JournalDamaged, Unavailable."""
        for is_here, run in groupby(wanted, lambda one: one.piece is not None):
            if is_here:
                yield from (one.piece for one in run if one.piece is not None)
                continue
            digests = {one.number: one.digest for one in run}
            for number, stored in self.chain.stored_ahead(list(digests)):
                piece = self.chain.decode(number, stored)
                assert stored is not None
                if digest_of(stored) != digests[number]:
                    raise JournalDamaged(f"{self.chain.path(number)}: is another one than before")
                yield piece

    def let_go(self, is_done: Callable[[HeldPiece], bool]) -> None:
        """Hold no more what is applied, or what nobody will need."""
        while self.held and is_done(self.held[0]):
            done = self.held.popleft()
            self.number, self.previous = done.number, done.digest
        if self.held:
            there = (one._replace(piece=None) if is_done(one) else one for one in self.held)
            self.held = deque(there)

    def again(self) -> None:
        """Read again what is not applied: something failed in between."""
        self.held.clear()
        self.read, self.read_previous, self._last = self.number, self.previous, None

    def seal(self, standby: str, store: str) -> bool:
        """End the strand behind the last piece that was read, for a standby that is promoted: who
        archives meets it with its next piece.

        Args:
            store: of which journals it is, as in manifests.

        Returns:
            False: there is another piece by now, which has to be read first.

        Raises:
            JournalDamaged, ResourceExhausted, Unavailable.
        """
        number = self.read + 1
        if self._last is None and self.read:
            stored = self.chain.stored(self.read)
            self._last = self.chain.decode(self.read, stored)
            self.read_previous = digest_of(stored or b"")
        # How far the strand goes can still be told by its last piece.
        reached = {} if self._last is None else self._last.reached
        end = LogPiece(
            self.chain.name, number, self.read_previous, store, 0, (), reached, fence=standby
        )
        if not self.chain.put_new(number, end.encode()):
            return False
        self.fence = standby
        return True
