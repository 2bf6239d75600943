"""Follower: applies what an archive gets, piece by piece, to the partitions of a standby.

A piece that says an instant ends a turn of the active broker: what is in it and those before is one
cut through all logs. So pieces wait for the one that ends their turn, and are applied together; of
a turn that is too large to be held they are read again.

Room: broker. One thread.
Holds: entries are applied behind each other, by their positions, however often a piece is read;
what is behind the last end of a turn is not applied, so nothing is there without its cause.
See: backup/log_chain.py; broker/backup/archiver.py, who stores the pieces; partition/following.py,
which applies the entries.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol

from dejaqueue.backup.log_chain import LogChain
from dejaqueue.backup.log_pieces import LogPiece, digest_of, owned_entries
from dejaqueue.catalogue.changes import Change, from_bytes
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.encryption.data_keys import DataKeys
from dejaqueue.journal.interface import Entry
from dejaqueue.journal.segments.store import OWN_NAME, PARTITION_BITS, cipher_name

HELD_PIECES_MAX: Final = 4
"""Pieces of one turn that are held in memory until it ends; of a larger turn all are read again."""
LATE_PIECES: Final = 8
"""Who is so many behind reads them ahead."""
APPLIED_SECONDS_MAX: Final = 60
"""A partition that has not applied what it was given by then is in trouble."""

Positioned = tuple[int, Entry]


class FollowerPort(Protocol):
    """A broker, as who follows for it sees it."""

    def catalogue_state(self) -> CatalogueState: ...  # noqa: D102
    def follow_change(self, change: Change, revision: int) -> None: ...  # noqa: D102
    def follow_entries(  # noqa: D102
        self, topic: str, partition: int, found: Sequence[Positioned]
    ) -> Future[Any]: ...


class FollowingEndedError(Exception):
    """The chain was ended by a standby.

    Attributes:
        standby: its id.
    """

    def __init__(self, standby: str) -> None:
        super().__init__(standby)
        self.standby = standby


class Follower:
    """Follows one chain.

    Args:
        keys: the keys to decrypt with, of wrapped ones by their names; None = there are none.
        number, previous, at_ms: as in StandbyRecord.

    Attributes:
        number, previous, at_ms: of the last piece that is applied, with all before it.
        read: number of the last piece that was looked at.
        read_previous: its digest.
        entries: how many were applied.
    """

    def __init__(
        self,
        broker: FollowerPort,
        chain: LogChain,
        keys: Callable[[Mapping[str, str]], DataKeys | None],
        data_keys: Mapping[str, str],
        *,
        number: int,
        previous: str,
        at_ms: int,
    ) -> None:
        self._broker, self.chain = broker, chain
        self._keys_of, self._data_keys = keys, dict(data_keys)
        self._keys = keys(self._data_keys)
        self.number, self.previous, self.at_ms = number, previous, at_ms
        self.read, self.read_previous = number, previous
        self.entries = 0
        self._held: list[LogPiece] = []
        self._names: dict[int, str] = {}
        self._names_revision = -1

    def step(self, is_stopping: threading.Event) -> bool:
        """Read and apply what there is; False = there was nothing new.

        Raises:
            FollowingEndedError. JournalDamaged: a piece, or an entry, is missing, or is not what
                was stored. Unavailable, ResourceExhausted, EncryptionKeyMissing: the same call
                again goes on.
        """
        count = 0
        for piece, digest in self._next_pieces():
            if piece.fence:
                raise FollowingEndedError(piece.fence)
            self._take(piece, digest)
            count += 1
            if is_stopping.is_set():
                break
        return count > 0

    def _next_pieces(self) -> Iterator[tuple[LogPiece, str]]:
        """Those behind the last one that was read, each compared with the one before."""
        stored = self.chain.stored(self.read + 1)
        if stored is None:
            return
        yield self._checked(self.read + 1, stored)
        if self.chain.stored(self.read + LATE_PIECES) is None:
            return
        last = self.chain.numbers().stop
        for number, ahead in self.chain.stored_ahead(range(self.read + 1, last)):
            yield self._checked(number, ahead)

    def _checked(self, number: int, stored: bytes | None) -> tuple[LogPiece, str]:
        piece = self.chain.decode(number, stored)
        assert stored is not None
        if self.read_previous and piece.previous != self.read_previous:
            raise JournalDamaged(f"{self.chain.path(number)}: does not follow the one before")
        return piece, digest_of(stored)

    def _take(self, piece: LogPiece, digest: str) -> None:
        is_new = piece.data_keys.items() - self._data_keys.items()
        if is_new:
            self._data_keys |= piece.data_keys
            self._keys = self._keys_of(self._data_keys)
        if piece.at_ms:
            self._apply_turn(lambda: self._turn(piece))
            self._held.clear()
            self.number, self.previous, self.at_ms = piece.number, digest, piece.at_ms
        elif piece.number - self.number <= HELD_PIECES_MAX:
            self._held.append(piece)
        self.read, self.read_previous = piece.number, digest

    def _turn(self, last: LogPiece) -> Iterator[LogPiece]:
        """The pieces of the turn that ends with this one."""
        before = range(self.number + 1, last.number)
        if len(before) == len(self._held):
            yield from self._held
        else:
            for number, stored in self.chain.stored_ahead(before):
                yield self.chain.decode(number, stored)
        yield last

    def again(self) -> None:
        """Read again what is not applied: something failed in between."""
        self._held.clear()
        self.read, self.read_previous = self.number, self.previous

    # --- a turn -------------------------------------------------------------------------------

    def _apply_turn(self, pieces: Callable[[], Iterator[LogPiece]]) -> None:
        """Apply a turn; all of it is durable when this returns.

        The catalogue comes first: entries of a topic may be in a piece before the one that makes
        it, as logs are stored one after the other.
        """
        for piece in pieces():
            for _, revision, entry in self._entries(piece, is_own=True):
                self._broker.follow_change(from_bytes(bytes(entry.extra)), revision)
        names = self._topic_names()
        for piece in pieces():
            found: dict[int, list[Positioned]] = defaultdict(list)
            for number, position, entry in self._entries(piece, is_own=False):
                found[number].append((position, entry))
            asked = []
            for number, entries in found.items():
                name = names.get(number >> PARTITION_BITS)
                if name is not None:  # else it is gone by the end of the turn
                    partition = number & ((1 << PARTITION_BITS) - 1)
                    asked.append(self._broker.follow_entries(name, partition, entries))
                    self.entries += len(entries)
            for one in asked:
                one.result(APPLIED_SECONDS_MAX)

    def _entries(self, piece: LogPiece, *, is_own: bool) -> Iterator[tuple[int, int, Entry]]:
        """Of each entry of a piece: its partition's number, its position there, and the entry.

        Args:
            is_own: those of the catalogue; else all others.
        """
        what = self.chain.path(piece.number)
        for one in piece.slices:
            if (one.log == OWN_NAME) != is_own:
                continue
            cipher = None
            if self._keys is not None:
                cipher = self._keys.cipher(cipher_name(one.log))
            for number, position, stored in owned_entries(one, what):
                yield number, position, entry_format.decode(stored, 0, cipher=cipher).entry

    def _topic_names(self) -> dict[int, str]:
        """Topics by their numbers, those included that are being deleted."""
        state = self._broker.catalogue_state()
        if state.revision != self._names_revision:
            rows = (*state.leaving.items(), *state.rows.items())
            self._names = {row.number: name for name, row in rows}
            self._names_revision = state.revision
        return self._names
