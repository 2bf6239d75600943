"""LogChain: the log pieces that follow the newest backup, as an archive has them.

    chains/<chain>/<number>     a piece, stored on condition that there is none of its number

Room: backup. Any thread.
Holds: of two who store a piece under one number, one is told; what is read are neighbours, up to
the last one, that name each other's digests; pieces from the beginning go when a newer backup has
what is in them, so a hole before the first of the last neighbours is no damage, if the backup
reaches them, and says that it needs none before.
See: log_pieces.py; archive.py, whose bucket it is; manifest.py, `chain` and `logs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dejaqueue.backup.log_pieces import LogPiece, digest_of
from dejaqueue.backup.manifest import Manifest
from dejaqueue.connections.bucket import Bucket
from dejaqueue.errors import JournalDamaged

PREFIX: Final = "chains/"
_DIGITS: Final = 12
READ_AT_ONCE: Final = 16
"""Pieces that are on their way from the store at the same time."""


class LogChain:
    """The pieces of one chain.

    Args:
        name: of the chain.
    """

    def __init__(self, bucket: Bucket, name: str) -> None:
        self._bucket, self.name = bucket, name

    def path(self, number: int) -> str:
        """Where a piece is, in the bucket."""
        return f"{PREFIX}{self.name}/{number:0{_DIGITS}d}"

    def put_new(self, number: int, stored: bytes | memoryview) -> bool:
        """Store a piece; False if there is another one of its number. Raises as Bucket.put_new."""
        # After a lost answer, what is there already is this one.
        return self._bucket.put_new(self.path(number), stored) or self.stored(number) == stored

    def stored(self, number: int) -> bytes | None:
        """A piece as it is stored; None = there is none. Raises Unavailable."""
        return self._bucket.get(self.path(number))

    def numbers(self) -> range:
        """The neighbours up to the last piece; empty = there are none. Raises Unavailable."""
        found = [
            int(one.name.rpartition("/")[2])
            for one in self._bucket.objects(f"{PREFIX}{self.name}/")
            if one.name.rpartition("/")[2].isdecimal()
        ]
        if not found:
            return range(1, 1)
        first = last = max(found)
        there = set(found)
        while first - 1 in there:
            first -= 1
        return range(first, last + 1)

    def pieces(self, numbers: range) -> Iterator[LogPiece]:
        """Pieces in order, each compared with the one before; read ahead, a few at a time.

        Raises:
            JournalDamaged: one is missing, or is not what was stored. Unavailable.
        """
        before = ""
        for number, stored in self.stored_ahead(numbers):
            piece = self.decode(number, stored)
            if before and piece.previous != before:
                raise JournalDamaged(f"{self.path(number)}: does not follow the one before")
            assert stored is not None
            before = digest_of(stored)
            yield piece

    def decode(self, number: int, stored: bytes | None) -> LogPiece:
        """The piece of its stored bytes. Raises JournalDamaged."""
        if stored is None:
            raise JournalDamaged(f"{self.path(number)} is missing")
        piece = LogPiece.decode(self.path(number), stored)
        if (piece.chain, piece.number) != (self.name, number):
            raise JournalDamaged(f"{self.path(number)}: another one is in its place")
        return piece

    def stored_ahead(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes | None]]:
        """Pieces as they are stored, in order, behind their numbers; read ahead, a few at a time.
        Raises Unavailable."""
        with ThreadPoolExecutor(READ_AT_ONCE, "dejaq-chain") as pool:
            for start in range(0, len(numbers), READ_AT_ONCE):
                some = numbers[start : start + READ_AT_ONCE]
                yield from zip(some, pool.map(self.stored, some), strict=True)

    def last_instant(self, numbers: range) -> int:
        """The last instant that its last pieces say, UTC milliseconds; 0 = none of them does.
        Raises JournalDamaged, Unavailable."""
        for number in reversed(numbers):
            at_ms = self.decode(number, self.stored(number)).at_ms
            if at_ms:
                return at_ms
        return 0

    def delete(self, numbers: range) -> None:
        """Delete pieces; those that are not there are fine. Raises Unavailable."""
        self._bucket.delete(self.path(number) for number in numbers)

    def delete_all(self) -> None:
        """Delete the chain. Raises Unavailable."""
        self._bucket.delete([one.name for one in self._bucket.objects(f"{PREFIX}{self.name}/")])


def chain_of(bucket: Bucket, manifest: Manifest) -> LogChain | None:
    """The chain that follows a backup; None = none does."""
    return LogChain(bucket, manifest.chain) if manifest.chain else None


def chain_names(bucket: Bucket) -> set[str]:
    """All chains of a bucket. Raises Unavailable."""
    return {one.name.split("/")[1] for one in bucket.objects(PREFIX)}


def is_reached(chain: LogChain, manifest: Manifest) -> bool:
    """Whether the pieces of a chain follow a backup: none that it would need was given up. Raises
    JournalDamaged, Unavailable."""
    numbers = chain.numbers()[:1]
    try:
        return not numbers or any(True for _ in following(chain, manifest, numbers=numbers))
    except JournalDamaged:
        return False


def following(
    chain: LogChain,
    manifest: Manifest,
    damaged: Callable[[str], None] | None = None,
    numbers: range | None = None,
) -> Iterator[LogPiece]:
    """The pieces that follow a backup, compared with it and with each other.

    Args:
        damaged: told what is damaged, and nothing behind that is given; None = it is raised.
        numbers: of these alone, neighbours from the first; None = all.

    Raises:
        JournalDamaged: the backup does not reach them, one is missing, or is not what was stored.
            Unavailable.
    """
    reached = dict(manifest.logs)
    there = chain.numbers() if numbers is None else numbers
    try:
        _check_begin(chain, manifest, there)
        for piece in chain.pieces(there):
            for one in piece.slices:
                # Of a log that came into use since the backup, entries say whether all are there.
                if one.after > reached.get(one.log, one.after):
                    raise JournalDamaged(
                        f"{chain.path(piece.number)}: entries of log {one.log} are missing behind "
                        f"{reached[one.log]}"
                    )
                reached[one.log] = max(one.last, reached.get(one.log, 0))
            yield piece
    except JournalDamaged as damage:
        if damaged is None:
            raise
        damaged(str(damage))


def _check_begin(chain: LogChain, manifest: Manifest, there: range) -> None:
    """Raise JournalDamaged if the first pieces that a backup needs are not among the neighbours."""
    first = manifest.chain_from
    # The last piece stays always; that there was one is known if a second one was made.
    if first and (there.start > first or (first > 2 and not there)):
        raise JournalDamaged(f"{chain.path(first)} is missing")
