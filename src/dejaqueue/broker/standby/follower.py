"""Follower: applies what an archive gets, cut by cut, to the partitions of a standby.

What brokers of a cluster, or processes of one, archive is in strands; that of a broker that is
alone is in one chain, which counts as one strand. Some pieces say a cut: where all logs ended at
one moment. Pieces wait until all strands together have the entries up to a cut; then these are
applied, the catalogue's first, and what is behind the cut goes on waiting. If much waits it is
not kept in memory, but read again.

Room: broker. One thread.
Holds: entries are applied behind each other, by their positions, however often a piece is read and
in however many strands one is; what is behind the last cut that is whole is not applied, so nothing
is there without its cause.
See: strand_reader.py; backup/strands.py, what a cut is; broker/backup/archiver.py and
record_archiver.py, who store the pieces; partition/following.py, which applies the entries.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Protocol

from dejaqueue.backup.log_chain import LogChain
from dejaqueue.backup.log_pieces import LogPiece, owned_entries
from dejaqueue.backup.strands import LogCut, cut_of, cut_order, strands_of, stretch_of
from dejaqueue.broker.standby.record import StandbyRecord
from dejaqueue.broker.standby.strand_reader import HeldPiece, StrandReader
from dejaqueue.catalogue.changes import Change, from_bytes
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.connections.bucket import Bucket
from dejaqueue.errors import JournalDamaged, Unavailable
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.encryption.data_keys import DataKeys
from dejaqueue.journal.interface import Entry
from dejaqueue.journal.segments.log_turn import LogSlice
from dejaqueue.journal.segments.store import OWN_NAME, PARTITION_BITS, cipher_name

HELD_BYTES_MAX: Final = 64 << 20
"""Of pieces that wait for a cut; those that come then are read again when there is one."""
STEP_PIECES: Final = 64
"""Of each strand, in one step: so that none gets far ahead of the others."""
CUTS_MAX: Final = 64
"""That wait for entries. Of more, every other one is given up: those in between are as good."""
SEAL_TRIES: Final = 1_000
"""An archiver may store a piece just before the end of its strand, and another one, …"""
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
    """A strand was ended by a standby, and all before that is read.

    Attributes:
        standby: its id.
    """

    def __init__(self, standby: str) -> None:
        super().__init__(standby)
        self.standby = standby


class LogGap(NamedTuple):
    """Entries of a log that no strand has, though there are others behind them: from behind
    `after` up to `last`."""

    log: str
    after: int
    last: int

    def told(self) -> str:
        """What is missing, in words."""
        entries = f"entries {self.after + 1} to {self.last} of log {self.log}"
        return f"the archive: {entries} are missing"


class _Stretch(NamedTuple):
    """What is applied of a slice: the entries from behind `after` up to `last`."""

    one: LogSlice
    after: int
    last: int


class Follower:
    """Follows one chain, or the strands of one.

    Args:
        begun: what is followed, and how far that is, with all wrapped keys that are known.
        keys: the keys to decrypt with, of wrapped ones by their names; None = there are none.
        in_strands: the chain is one of strands, as manifests say.

    Attributes:
        strands: those that are read, by name.
        logs, at_ms: of the last cut that is applied.
        data_keys: wrapped keys that are known.
        entries: how many were applied.
        read_count: how many pieces were read in the last step.
        gap: entries that were missing in the last step in which nothing new was read, and for want
            of which nothing can be applied.
    """

    def __init__(
        self,
        broker: FollowerPort,
        bucket: Bucket,
        begun: StandbyRecord,
        keys: Callable[[Mapping[str, str]], DataKeys | None],
        *,
        in_strands: bool,
    ) -> None:
        self._broker, self._bucket, self._chain = broker, bucket, begun.chain
        self._in_strands = in_strands
        self._keys_of, self.data_keys = keys, dict(begun.data_keys)
        self._keys = keys(self.data_keys)
        self.strands = {
            name: StrandReader(LogChain(bucket, name), *place)
            for name, place in sorted(begun.strands.items())
        }
        self.logs, self.at_ms = dict(begun.logs), begun.at_ms
        self.entries = self.read_count = 0
        self.gap: LogGap | None = None
        self._cuts: list[LogCut] = []
        self._held_bytes = 0
        self._names: dict[int, str] = {}
        self._served: frozenset[int] = frozenset()
        self._revision = -1

    # --- reading ------------------------------------------------------------------------------

    def look(self) -> None:
        """Know of all strands that there are. Raises Unavailable."""
        if not self._in_strands:
            chains = [] if self.strands else [LogChain(self._bucket, self._chain)]
        else:
            chains = strands_of(self._bucket, self._chain)
        for chain in chains:
            if chain.name not in self.strands:
                self.strands[chain.name] = StrandReader(chain, chain.numbers().start - 1, "")

    @property
    def waits(self) -> bool:
        """Whether something is read that no cut has yet."""
        return any(strand.held for strand in self.strands.values())

    def step(self, is_stopping: threading.Event) -> bool:
        """Read what there is, and apply it up to the last cut; False = there was nothing new.

        Raises:
            FollowingEndedError. JournalDamaged: a piece, or an entry, is missing, or is not what
                was stored. Unavailable, ResourceExhausted, EncryptionKeyMissing: the same call
                again goes on.
        """
        count = 0
        for strand in self.strands.values():
            for piece, digest in strand.following(STEP_PIECES):
                self._take(strand, piece, digest)
                count += 1
                if is_stopping.is_set() or strand.fence:
                    break
        self.read_count = count
        cut = self._whole_cut(is_idle=not count)
        if cut is not None:
            self._apply(cut)
        elif not count:
            for strand in self.strands.values():
                if strand.fence:
                    raise FollowingEndedError(strand.fence)
        return count > 0 or cut is not None

    def _take(self, strand: StrandReader, piece: LogPiece, digest: str) -> None:
        if piece.data_keys.items() - self.data_keys.items():
            self.data_keys |= piece.data_keys
            self._keys = self._keys_of(self.data_keys)
        for one in piece.slices:
            if not self._in_strands:
                self.logs.setdefault(one.log, one.after)
            elif "/" in one.log:  # a partition's own, which is archived from its first entry on
                self.logs.setdefault(one.log, 0)
        if not self._in_strands:
            for log, position in piece.reached.items():
                self.logs.setdefault(log, position)  # all that was in it had been given back
        strand.take(piece, digest, keeps=self._held_bytes < HELD_BYTES_MAX)
        if strand.fence:
            return
        self._held_bytes += strand.held[-1].byte_count
        cut = cut_of(piece)
        if cut is not None:
            self._cuts.append(cut)
            if len(self._cuts) > CUTS_MAX:
                self._cuts.sort(key=cut_order)
                del self._cuts[1:-1:2]

    def again(self) -> None:
        """Read again what is not applied: something failed in between."""
        for strand in self.strands.values():
            strand.again()
        self._cuts, self._held_bytes, self.gap = [], 0, None

    def seal(self, standby: str, store: str) -> None:
        """End all strands that are known, as StrandReader.seal, behind what was stored by then.

        Between a piece and the end behind it nothing is done, as archivers store on: who looks for
        other strands in between may find another piece for ever.

        Raises:
            JournalDamaged, ResourceExhausted, Unavailable.
        """
        for strand in self.strands.values():
            for _ in range(SEAL_TRIES):
                if strand.fence or strand.seal(standby, store):
                    break
                for piece, digest in strand.following(STEP_PIECES):
                    self._take(strand, piece, digest)
            else:
                raise Unavailable("the other broker keeps archiving", 1_000)

    # --- cuts ---------------------------------------------------------------------------------

    def _whole_cut(self, *, is_idle: bool) -> LogCut | None:
        """The last cut whose entries are all there, if it has anything new.

        Args:
            is_idle: nothing new was read: what is missing is missing.
        """
        self._cuts = sorted((one for one in self._cuts if self._is_newer(one)), key=cut_order)
        self.gap = None
        if not self._cuts:
            return None
        there, gaps = self._there()
        for cut in reversed(self._cuts):
            if all(end <= there.get(log, 0) for log, end in cut.ends.items()):
                return cut
        wanted = self._cuts[-1].ends
        if is_idle:
            self.gap = next((gap for gap in gaps if gap.after < wanted.get(gap.log, 0)), None)
        return None

    def _is_newer(self, cut: LogCut) -> bool:
        """Whether a cut is not behind what is applied. Each cut is within the next, but for topics
        that are gone by then, which the catalogue says."""
        ends, logs = cut.ends, self.logs
        if ends.get(OWN_NAME, 0) < logs.get(OWN_NAME, 0):
            return False
        if any(end < logs.get(log, 0) for log, end in ends.items()):
            return False
        return cut.at_ms > self.at_ms or any(end > logs.get(log, 0) for log, end in ends.items())

    def _bounds(self) -> dict[str, list[tuple[int, int]]]:
        """Of each log that pieces have that are held: from behind where to where, in order."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for strand in self.strands.values():
            for held in strand.held:
                for log, after, last in held.bounds:
                    found[log].append((after, last))
        for bounds in found.values():
            bounds.sort()
        return found

    def _there(self) -> tuple[dict[str, int], list[LogGap]]:
        """Up to where there are all entries of each log, and where one is missing before others."""
        found, gaps = dict(self.logs), []
        for log, bounds in self._bounds().items():
            # Of a log that came into use since the backup, entries say whether all are there.
            reached, behind = stretch_of(bounds, self.logs.get(log, bounds[0][0]))
            found[log] = reached
            if behind is not None:
                gaps.append(LogGap(log, reached, behind))
        return found, gaps

    # --- applying -----------------------------------------------------------------------------

    def _apply(self, cut: LogCut) -> None:
        """Apply what is up to a cut; all of it is durable when this returns.

        The catalogue comes first: entries of a topic may be in a piece before the one that makes
        it, or in another strand.
        """
        for what, stretches in self._merged(cut, {OWN_NAME} & cut.ends.keys()):
            for _, revision, entry in self._entries(what, stretches):
                self._broker.follow_change(from_bytes(bytes(entry.extra)), revision)
        self._read_names()
        for what, stretches in self._merged(cut, cut.ends.keys() - {OWN_NAME}):
            found: dict[int, list[Positioned]] = defaultdict(list)
            for number, position, entry in self._entries(what, stretches):
                found[number].append((position, entry))
            asked = []
            for number, entries in found.items():
                name = self._names.get(number >> PARTITION_BITS)
                if name is not None:  # else it is gone by the end of the turn
                    partition = number & ((1 << PARTITION_BITS) - 1)
                    asked.append(self._broker.follow_entries(name, partition, entries))
                    self.entries += len(entries)
            for one in asked:
                one.result(APPLIED_SECONDS_MAX)
        self.logs |= cut.ends
        self.logs = {log: at for log, at in self.logs.items() if not self._is_gone(log)}
        self.at_ms = max(self.at_ms, cut.at_ms)
        for strand in self.strands.values():
            strand.let_go(self._is_done)
        held = (one for strand in self.strands.values() for one in strand.held)
        self._held_bytes = sum(one.byte_count for one in held)

    def _merged(self, cut: LogCut, logs: Collection[str]) -> Iterator[tuple[str, list[_Stretch]]]:
        """What pieces have of some logs up to a cut, and what each piece is called: in such an
        order that entries of a log follow each other, though they are in several strands.

        There always is one: who goes on with a log in another strand has seen the piece that is
        there before, so pieces can be read in the order in which they were stored.
        """
        starts = {log: bounds[0][0] for log, bounds in self._bounds().items() if log in logs}
        at = {log: self.logs.get(log, start) for log, start in starts.items()}
        ends = {log: cut.ends[log] for log in starts}
        left = []
        for strand in self.strands.values():
            some = [one for one in strand.held if _planned(one, at, ends) != []]
            left.append((strand, deque(some), strand.contents(some)))
        while any(wanted for _, wanted, _ in left):
            has_moved = False
            for strand, wanted, contents in left:
                while wanted and (planned := _planned(wanted[0], at, ends)) is not None:
                    wanted.popleft()
                    piece = next(contents)
                    stretches = [_Stretch(piece.slices[i], *bounds) for i, *bounds in planned]
                    at |= {one.one.log: one.last for one in stretches}
                    yield strand.chain.path(piece.number), stretches
                    has_moved = True
            if not has_moved:
                raise JournalDamaged("the archive: strands wait for each other's entries")

    def _entries(
        self, what: str, stretches: Sequence[_Stretch]
    ) -> Iterator[tuple[int, int, Entry]]:
        """Of each entry: its partition's number, its position there, and the entry."""
        for one, after, last in stretches:
            cipher = None if self._keys is None else self._keys.cipher(cipher_name(one.log))
            position = one.after
            for number, local, stored in owned_entries(one, what):
                position += 1
                if position > last:
                    break
                if position > after:
                    yield number, local, entry_format.decode(stored, 0, cipher=cipher).entry

    def _is_done(self, held: HeldPiece) -> bool:
        return all(
            last <= self.logs.get(log, -1) or self._is_gone(log) for log, _, last in held.bounds
        )

    def _is_gone(self, log: str) -> bool:
        """Whether it is that of a partition whose topic is deleted."""
        number, slash, _ = log.partition("/")
        if not slash:
            return False
        return int(number) <= self._revision and int(number) not in self._served

    def _read_names(self) -> None:
        """Know topics by their numbers, those included that are being deleted."""
        state = self._broker.catalogue_state()
        if state.revision != self._revision:
            rows = (*state.leaving.items(), *state.rows.items())
            self._names = {row.number: name for name, row in rows}
            self._served = frozenset(row.number for row in state.rows.values())
            self._revision = state.revision


def _planned(
    held: HeldPiece, at: Mapping[str, int], ends: Mapping[str, int]
) -> list[tuple[int, int, int]] | None:
    """What is to be applied of a piece.

    Args:
        at: up to where entries of each log that is wanted are applied.
        ends: up to where they are to be.

    Returns:
        Of each slice that has some: its index, from behind where, and up to where. None = entries
        before those are missing, which another strand has.
    """
    reached, found = dict[str, int](), list[tuple[int, int, int]]()
    for index, (log, after, last) in enumerate(held.bounds):
        if log not in ends:
            continue
        start, end = reached.get(log, at[log]), min(last, ends[log])
        if start >= end:
            continue
        if after > start:
            return None
        found.append((index, start, end))
        reached[log] = end
    return found
