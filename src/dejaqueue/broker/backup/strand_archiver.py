"""StrandArchiver: the archiver of one of several processes that divide a data directory.

Each stores what the logs get that it has open, in a chain of its own, a strand. One of them, who
holds a lock for that, takes cuts besides: it begins a turn, which all processes see in memory that
they share, and says in its next piece where each log ended then, whoever has it.

Room: broker. A thread of its own in each process.
Holds: a piece is stored when those before it are that have the entries before it, in whichever
strand, so strands have no gap; a cut is one moment of all logs and of the catalogue, and is there
when the entries before it are: until then a restore goes to one before.
See: archiver.py, which this is; journal/segments/shared_turn.py, what is shared; backup/strands.py,
how it is read; catalogue_slices.py; docs/adr/0094-each-process-archives-its-logs.md.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Final

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.log_chain import LogChain
from dejaqueue.backup.log_pieces import LogPiece, digest_of, farther
from dejaqueue.backup.manifest import Manifest
from dejaqueue.backup.strands import LogCut, last_pieces, strand_name, strands_of
from dejaqueue.broker.backup.archived_line import strangeness
from dejaqueue.broker.backup.archiver import (
    PATIENCE_SECONDS,
    ArchivePosition,
    Archiver,
    ArchiverPort,
    ChainError,
)
from dejaqueue.broker.backup.catalogue_slices import CatalogueSlices
from dejaqueue.broker.backup.cut import serve_used
from dejaqueue.broker.backup.lineage import Lineage
from dejaqueue.catalogue.log import JOURNAL
from dejaqueue.connections.bucket_urls import open_bucket
from dejaqueue.errors import (
    BadRequest,
    JournalDamaged,
    Locked,
    Refused,
    ResourceExhausted,
    Unavailable,
)
from dejaqueue.journal.processes import ProcessStore
from dejaqueue.journal.segments.log_turn import FollowedLog, LogSlice
from dejaqueue.journal.segments.shared_store import LOCKS, SharedStore
from dejaqueue.journal.segments.store import OWN_NAME, DirectoryLock, cipher_name

LEADER: Final = "archiver"
"""The lock of who takes cuts."""
CUT_TRIES: Final = 5
"""Of a cut during which the catalogue changes."""
SERVE_US: Final = 500_000
"""Entries that nobody archives for so long are looked for: who serves their topics opens them."""
LEAD_US: Final = 1_000_000
"""A process that stops waits so long for the lock of who takes cuts, as all may be stopping."""
LOOK_US: Final = 20_000
CHAIN_US: Final = 10_000_000
"""Who takes cuts looks this often which chain the newest backup has: whoever took it may have died
before it could tell."""

log = logging.getLogger("dejaqueue.backup")


class StrandArchiver(Archiver):
    """See the module; as Archiver."""

    def __init__(self, broker: ArchiverPort, executor: Executor) -> None:
        super().__init__(broker, executor)
        self._lead: DirectoryLock | None = None
        self._catalogue: CatalogueSlices | None = None
        self._known: dict[str, int] = {}
        """Up to where the strands of all processes had each log when they were read."""
        self._unchecked: list[LogPiece] = []
        """Their last pieces."""
        self._followed: dict[str, FollowedLog] = {}
        self._seen_chain = self._chain_number = self._turned = 0
        self._stuck: dict[str, tuple[int, int]] = {}
        """Logs that are not open here and not archived in full: up to where, and since when."""
        self._empty: list[LogSlice] = []
        self._cut: LogCut | None = None
        """To be said with the next piece."""
        self._last_ends: dict[str, int] = {}
        self._cut_due_us = self._served_us = self._compared_us = 0
        self._knows_all = False
        self._begun_name = ""
        self._is_first = False
        """The strand begins with the next piece, or has begun, and the fence was not read since."""

    # --- any thread ---------------------------------------------------------------------------

    def _fits(self) -> bool:
        return isinstance(self._broker.store, ProcessStore)

    @property
    def _processes(self) -> ProcessStore:
        store = self._broker.store
        assert isinstance(store, ProcessStore)
        return store

    @property
    def store(self) -> SharedStore:
        """The journals of topics."""
        return self._processes.segments

    def lag_us(self) -> int:
        """See Archiver; also for how long it was not possible to take a cut."""
        due_us = self._cut_due_us
        waiting_us = self._broker.clock.now_us() - due_us if due_us else 0
        return max(super().lag_us(), waiting_us)

    # --- for backups --------------------------------------------------------------------------

    def check_line(self, archive: Archive, newest: Manifest | None) -> None:
        """See Archiver: the last piece of each strand is compared with the logs that are open."""
        if newest is None or not newest.in_strands:
            return
        serve_used(self._broker)
        for strand, piece in last_pieces(strands_of(archive.bucket, newest.chain)):
            strange = strangeness(piece, self.store)
            if strange:
                raise Refused(
                    f"{strange}, of {strand.name}, which was archived behind backup {newest.id} at "
                    f"{archive.bucket.url}: an old copy was put in place; restore that backup, or "
                    "begin anew with a full one"
                )

    def note(self) -> ArchivePosition:
        """See Archiver. The chain is "" where nothing is archived here: another has to begin."""
        built, chain = self._built, self._chain  # before the tails
        logs = {name: one.tail for name, one in self.store.open_logs().items()}
        return ArchivePosition("" if chain is None else self._begun_name, False, built, logs)

    def tails(self) -> dict[str, int]:
        """Where all logs end, whoever has them, that were opened since the processes run."""
        return self._processes.turn.tails()

    def backed_up(self, note: ArchivePosition, logs: dict[str, int]) -> None:
        """A backup of all processes is there. Raises nothing; see `follow`.

        Args:
            note: what was noted here for it.
            logs: the strands have what it lacks, from behind these positions.
        """
        if not note.chain:
            return
        with self._guard:
            self._covered = logs
            self._give_up_to = max(self._give_up_to, self._give_up_next)
            if all(logs.get(name) == end for name, end in note.logs.items()):
                self._give_up_next = note.built
        self._wake.ring()

    def hears_of(self, chain: str) -> None:
        """Another one took a backup that strands of this chain follow. Processes share memory that
        says so, too; brokers of several machines have none."""

    def begins(self, chain: str) -> None:
        """A backup is there which strands of this chain follow: all processes hear of it."""
        self._processes.turn.chain = int(chain, 16)

    @staticmethod
    def new_chain() -> str:
        """A name for a chain; never zero."""
        return (os.urandom(7) + b"\x01").hex()

    # --- its thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        clock, next_us = self._broker.clock, 0
        self._attempt(self._resume_patiently)
        while True:
            is_last = self._is_stopping
            self._attempt(self._take_over)
            # Who takes cuts keeps time; the others store what is in a cut as soon as they see it.
            is_cut = self._is_cut_begun()
            if is_last or is_cut or clock.now_us() >= next_us:
                interval_ms = self._broker.settings.backup.archive_interval_ms
                next_us = clock.now_us() + interval_ms * 1_000
                if self._chain is not None:
                    self._attempt(self._turn)
            if is_last:
                self._end()
                return
            clock.wait_until(next_us, self._wake)

    def _is_cut_begun(self) -> bool:
        """Whether another one has begun a turn that is not looked at yet."""
        return self._lead is None and self._processes.turn.number != self._turned

    def _end(self) -> None:
        """The last one that stops takes a cut of what all have done."""
        clock = self._broker.clock
        until_us = clock.now_us() + LEAD_US
        while self._chain is not None and self._lead is None and clock.now_us() < until_us:
            clock.wait_until(clock.now_us() + LOOK_US, self._stop_wake)
            if self._took_lead():
                self._attempt(self._turn)
        lead, self._lead = self._lead, None
        if lead is not None:
            lead.release()
        catalogue, self._catalogue = self._catalogue, None
        if catalogue is not None:
            catalogue.close()

    def _resume(self) -> bool:
        """Go on with this process's strand of the chain that the newest backup has; False = it has
        none. Raises as Archiver's."""
        self._seen_chain = self._told_chain()
        lineage = Lineage(self.journals)
        try:
            archive = Archive.open(self._broker.settings.backup.url)
        except BadRequest:
            return False  # there is no backup yet
        self._check_fence(archive.bucket)
        manifest = archive.newest(lineage.store)
        if manifest is None or not manifest.in_strands:
            return False
        lineage.check(archive.bucket.url, manifest)
        self._known = dict(manifest.logs)
        self._unchecked = []
        own, numbers, previous = self._own_strand(manifest.chain), range(1, 1), ""
        reached: dict[str, int] = {}
        for strand, piece in last_pieces(strands_of(archive.bucket, manifest.chain)):
            self._unchecked.append(piece)
            self._known = farther(self._known, piece.reached)
            if strand.name == own.name:
                numbers = strand.numbers()
                stored = strand.stored(piece.number)
                assert stored is not None
                previous, reached = digest_of(stored), dict(piece.reached)
        self._end_chains_but(own.name)
        self._first, self._number = (numbers.start, numbers[-1]) if numbers else (1, 0)
        self._built, self._store_id, self._is_first = self._number, manifest.store, not numbers
        self._previous, self._reached, self._told_key = previous, reached, 0
        self._followed, self._last_ends, self._cut, self._empty = {}, {}, None, []
        self._begun_name, self._chain_number = manifest.chain, int(manifest.chain, 16)
        self._chain, self._broken = own, ""
        return True

    def _own_strand(self, chain: str) -> LogChain:
        bucket = open_bucket(self._broker.settings.backup.url, patience_seconds=PATIENCE_SECONDS)
        return LogChain(bucket, strand_name(chain, self._node))

    @property
    def _node(self) -> str:
        """What this one is called among those that have a strand."""
        return self._broker.settings.cluster.node

    def _told_chain(self) -> int:
        """The chain that was heard of last; 0 = none was."""
        return self._processes.turn.chain

    def _is_archived(self, name: str, position: int) -> None:
        """Tell the others that a log is archived so far."""
        self._processes.turn.is_archived(name, self._chain_number, position)

    def _take_over(self) -> None:
        """What backups have told since."""
        with self._guard:
            covered, self._covered = self._covered, {}
            give_up_to, self._give_up_to = self._give_up_to, 0
        if self._told_chain() != self._seen_chain:
            if self._told_chain() == self._chain_number and self._chain is not None:
                self._seen_chain = self._chain_number
            else:
                self._resume_patiently()
                return
        if self._chain is None or not covered:
            return
        mine = {name: position for name, position in covered.items() if name in self._reached}
        self._reached = farther(self._reached, mine)
        self._logs.keep(self._reached)
        for name, position in mine.items():
            self._is_archived(name, position)
        try:
            self._delete_to(self._chain, give_up_to)
        except (Unavailable, ResourceExhausted) as failure:  # with the next backup, then
            self._fail(failure)

    # --- a turn -------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Take a cut, if that is this one's to do; store what the logs here have got."""
        try:
            self._store_turn()
            self._check_begun()
        except Unavailable as failure:  # the catalogue cannot be read now: with the next turn
            self._fail(failure)

    def _check_begun(self) -> None:
        """Look for a fence behind the first piece of a strand: a standby ends the strands that it
        finds, so that of a later one its archiver has to find the fence. Raises Unavailable."""
        if self._is_first and self._number:
            url = self._broker.settings.backup.url
            self._check_fence(open_bucket(url, patience_seconds=PATIENCE_SECONDS))
            self._is_first = False

    def _store_turn(self) -> None:
        clock, self._turned = self._broker.clock, self._processes.turn.number
        self._follow_logs()
        if self._leads():
            self._compare_chain()
            self._cut = self._taken_cut()
        logs = dict(self._processes.segments.turn.logs)
        ends = {name: max(one.tail, self._reached.get(name, 0)) for name, one in logs.items()}
        if self._cut is not None:
            ends[OWN_NAME] = self._cut.ends[OWN_NAME]
        if self._empty or any(end > self._reached.get(name, 0) for name, end in ends.items()):
            self._oldest_us = self._oldest_us or self._changed_us or clock.now_us()
        elif self._cut is None:
            self._changed_us = self._oldest_us = 0
            self._see_to_others()
            return
        self._changed_us = 0
        at_ms = 0 if self._cut is None else self._cut.at_ms
        if not self._store_up_to(at_ms, ends):
            return
        self._oldest_us = 0
        for name, one in logs.items():
            if one.has_failed and self._reached.get(name, 0) >= one.tail:
                self.store.turn.logs.pop(name, None)  # it was closed, perhaps for another process
        self._see_to_others()

    def _compare_chain(self) -> None:
        """Have all go on with the chain of the newest backup. Raises Unavailable."""
        now_us = self._broker.clock.now_us()
        if now_us - self._compared_us < CHAIN_US:
            return
        self._compared_us = now_us
        url = self._broker.settings.backup.url
        archive = Archive(open_bucket(url, patience_seconds=PATIENCE_SECONDS))
        try:
            newest = archive.newest(self._store_id)
        except JournalDamaged as damage:  # the next verification tells it
            log.info("the newest backup cannot be read: %s", damage)
            return
        if newest is not None and newest.in_strands and newest.chain != self._begun_name:
            self.begins(newest.chain)

    def _follow_logs(self) -> None:
        """Where to go on in logs that were opened here since the last turn."""
        turn, tails = self._processes.turn, self._processes.turn.tails()
        for name, one in list(turn.logs.items()):
            if one.has_failed and tails.get(name, 0) > one.tail:
                turn.logs.pop(name, None)  # another process has it, and archives it
                continue
            if self._followed.get(name) is one:
                continue
            at = max(
                self._reached.get(name, 0),
                self._known.get(name, 0),
                turn.archived(name, self._chain_number),
            )
            if at > one.tail:
                raise ChainError(f"these journals are older than what is archived of log {name}")
            self._check_known(name)
            self._followed[name] = one
            # Who had it before may have drawn a data key for it, and not lived to archive that.
            self._told_key = 0
            segments = one.listed.segments
            if not at and one.tail and (not segments or segments[0].first > one.tail):
                # All that was in it was given back: a slice of nothing says where it begins.
                at = one.tail
                self._empty.append(LogSlice(name, at, at, memoryview(b"")))
            if at:
                self._reached[name] = at
                turn.is_archived(name, self._chain_number, at)

    def _check_known(self, name: str) -> None:
        """Compare the pieces that were there at the start with a log that was opened."""
        for piece in self._unchecked:
            slices = tuple(one for one in piece.slices if one.log == name)
            reached = {log: at for log, at in piece.reached.items() if log == name}
            strange = strangeness(replace(piece, slices=slices, reached=reached), self.store)
            if strange:
                raise ChainError(strange)

    def _see_to_others(self) -> None:
        """Open what a process had that ended, if it falls to this one, when nobody archives it."""
        now_us = self._broker.clock.now_us()
        if self._is_stopping or now_us - self._served_us < SERVE_US:
            return  # partitions of a broker that stops answer nothing
        self._served_us = now_us
        self._knows_all = self._knows_all or not self._unopened()
        if self._knows_all and not self._is_left(now_us):
            return
        try:
            serve_used(self._broker)
        except (Unavailable, JournalDamaged) as failure:
            log.info("what another process had is not archived yet: %s", failure)

    def _is_left(self, now_us: int) -> bool:
        """Whether a log that no process has open is not archived in full."""
        turn, stuck = self._processes.turn, self._stuck
        self._stuck = {}
        for name, tail in turn.tails().items():
            at = max(turn.archived(name, self._chain_number), self._known.get(name, 0))
            if name not in turn.logs and at < tail:
                before = stuck.get(name, (at, now_us))
                self._stuck[name] = before if before[0] == at else (at, now_us)
        return any(
            now_us - since_us >= SERVE_US and not self._is_open(name)
            for name, (_, since_us) in self._stuck.items()
        )

    def _is_open(self, name: str) -> bool:
        """Whether some process has a log open."""
        try:
            DirectoryLock(self.store.root / LOCKS, f"{int(name):04d}").release()
        except Locked:
            return True
        return False

    def _unopened(self) -> set[str]:
        """Logs with topics that no process has opened yet: where they end is not known."""
        return {*self.store.used_logs()} - self._processes.turn.tails().keys()

    def _next_piece(self, at_ms: int, ends: dict[str, int]) -> tuple[LogPiece | None, bool]:
        """See Archiver; the last piece says the cut, though there be nothing else in it."""
        piece, is_last = super()._next_piece(0, ends)
        cut = self._cut if is_last else None
        if cut is None and not self._empty:
            return piece, is_last
        if piece is None:
            assert self._chain is not None
            piece = LogPiece(
                self._chain.name,
                self._number + 1,
                self._previous,
                self._store_id,
                0,
                (),
                dict(self._reached),
                self._new_keys(),
            )
        if self._empty:
            piece = replace(piece, slices=(*self._empty, *piece.slices))
            self._empty = []
        if cut is not None:
            piece = replace(piece, at_ms=at_ms, ends=cut.ends, clocks=cut.clocks)
            self._cut, self._last_ends = None, cut.ends
        return piece, is_last

    def _slice(self, name: str, after: int, last: int, byte_count_max: int) -> LogSlice | None:
        if name != OWN_NAME:
            return super()._slice(name, after, last, byte_count_max)
        assert self._catalogue is not None
        try:
            return self._catalogue.slice(after, last, byte_count_max)
        except JournalDamaged as damage:
            raise ChainError(f"{damage}; it was not archived before") from damage

    def _put(self, piece: LogPiece) -> bool:
        if not super()._put(piece):
            return False
        for one in piece.slices:
            self._is_archived(one.log, one.last)
        return True

    # --- cuts ---------------------------------------------------------------------------------

    def _leads(self) -> bool:
        """Whether this process takes cuts; then the catalogue is its to archive."""
        if not self._took_lead():
            return False
        if self._catalogue is None:
            encryption = self.store.encryption
            cipher = None if encryption is None else encryption.cipher(cipher_name(OWN_NAME))
            records = self._processes.second_records()
            opener = partial(records.open, JOURNAL, 0)
            self._catalogue = CatalogueSlices(opener, cipher, records.close)
        at = max(
            self._reached.get(OWN_NAME, 0),
            self._known.get(OWN_NAME, 0),
            self._processes.turn.archived(OWN_NAME, self._chain_number),
        )
        self._reached[OWN_NAME] = at
        return True

    def _took_lead(self) -> bool:
        if self._lead is None:
            try:
                self._lead = DirectoryLock(self.store.root / LOCKS, LEADER)
            except Locked:
                return False
        return True

    def _taken_cut(self) -> LogCut | None:
        """A cut, if there is anything new since the last one, and where all logs end is known."""
        turn, clock, catalogue = self._processes.turn, self._broker.clock, self._catalogue
        assert catalogue is not None
        revision = catalogue.tail()
        if self._last_ends == {**self._known, **turn.tails(), OWN_NAME: revision}:
            self._cut_due_us = 0
            return None
        self._cut_due_us = self._cut_due_us or clock.now_us()
        if not self._knows_all:
            self._knows_all = not self._unopened()
            if not self._knows_all:
                return None
        for _ in range(CUT_TRIES):
            # What is acknowledged later in this millisecond is in the next turn.
            at_ms = clock.utc_ms() - 1
            turn.begin()
            ends = turn.ends()
            before, revision = revision, catalogue.tail()
            if before == revision:
                self._cut_due_us = 0
                return LogCut(at_ms, {**self._known, **ends, OWN_NAME: revision})
        return None
