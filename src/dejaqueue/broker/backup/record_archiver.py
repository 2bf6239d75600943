"""RecordArchiver: the archiver of a broker whose journals are on a server, alone or in a cluster.

A server's journals have no log of segments to read. So what is stored are records, by partition:
each is a log of its own, `<topic's number>/<partition>`, whose positions are those of the journal.
Each broker stores what its partitions have published, in a strand; whoever takes a partition over
goes on from where the strands have it. One broker takes cuts.

Room: broker. A thread of its own.
Holds: as strand_archiver.py: strands have no gap, and a cut is one moment of all partitions and of
the catalogue; what is stored was published, so it is durable.
See: strand_archiver.py, which this is; cluster_cuts.py; record_slices.py; shard/turn_hold.py;
docs/adr/0095-a-turn-of-several-brokers-holds-answers.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, Protocol

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.log_chain import LogChain
from dejaqueue.backup.log_pieces import LogPiece, farther
from dejaqueue.backup.manifest import Manifest
from dejaqueue.backup.strands import LogCut, last_pieces, strands_of
from dejaqueue.broker.backup.archiver import (
    PATIENCE_SECONDS,
    STOP_SECONDS_MAX,
    ArchivePosition,
    ArchiverPort,
    ChainError,
)
from dejaqueue.broker.backup.catalogue_slices import CatalogueSlices
from dejaqueue.broker.backup.cluster_cuts import ClusterCuts, CutsPort
from dejaqueue.broker.backup.cut import HeldPartition, serve_used
from dejaqueue.broker.backup.record_slices import differs, record_slice
from dejaqueue.broker.backup.strand_archiver import LOOK_US, SERVE_US, StrandArchiver
from dejaqueue.broker.shard.turn_hold import Publication, log_name
from dejaqueue.broker.topic.cluster_port import BackupTurns
from dejaqueue.catalogue.log import JOURNAL
from dejaqueue.connections.bucket_urls import open_bucket
from dejaqueue.errors import BadRequest, DejaQError, JournalDamaged, Refused, Unavailable
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.journal.segments.log_turn import LogSlice, LogTurn
from dejaqueue.journal.segments.store import OWN_NAME, cipher_name

ALONE: Final = "alone"
"""What the strand of a broker that is alone is called."""
OLDER_US: Final = 30_000_000
"""A journal that ends before what is archived of it, for so long, is an older copy: for less it may
be another broker's already, and this one hears of it in a moment."""

MOVED_US: Final = 2_000_000
log = logging.getLogger("dejaqueue.backup")


class RecordArchiverPort(ArchiverPort, CutsPort, Protocol):
    """A broker, as this archiver sees it."""


class RecordArchiver(StrandArchiver):
    """See the module; as StrandArchiver.

    Args:
        turns: what is agreed on with other brokers; None = there are none, or not yet.
    """

    def __init__(
        self,
        broker: RecordArchiverPort,
        executor: Executor,
        turns: Callable[[], BackupTurns | None],
    ) -> None:
        super().__init__(broker, executor)
        self._turns, self._hold = turns, broker.turn_hold
        self._cuts = ClusterCuts(broker, turns)
        self._told = ""
        """The chain that was heard of last."""
        self._is_begun = self._is_asked = False
        """A turn was begun here; a partition is missing in cuts, perhaps one of here."""
        self._open: dict[str, Publication] = {}
        """Partitions whose place in the strands is known."""
        self._older_us: dict[str, int] = {}
        self._absent: set[str] = set()
        """Logs that the last backup did not have."""
        self._no_logs = LogTurn()

    # --- any thread ---------------------------------------------------------------------------

    def _fits(self) -> bool:
        return isinstance(self._broker.store, RecordJournalStore)

    @property
    def _records(self) -> RecordJournalStore:
        store = self._broker.store
        assert isinstance(store, RecordJournalStore)
        return store

    @property
    def holds_turns(self) -> bool:
        """See Archiver."""
        return self.is_wanted

    def _begin_to_follow(self) -> None:
        """Partitions say by themselves what they publish."""

    def lag_us(self) -> int:
        """See Archiver."""
        changed_us = self._hold.changed_us
        waiting_us = self._broker.clock.now_us() - changed_us if changed_us else 0
        return max(super().lag_us(), waiting_us if self.is_wanted else 0)

    def hear(self, body: dict[str, Any]) -> dict[str, Any]:
        """Do a step of a turn (cluster_cuts.py).

        Raises:
            BadRequest: there is no such step. Refused: nothing is archived here. Unavailable: the
                answers here wait for another turn.
        """
        step, turn, chain = body.get("step"), body.get("turn", ""), body.get("chain", "")
        if not self.is_wanted:
            raise Refused("backup.archive_interval_ms is 0 here, and is not elsewhere")
        if step == "look":
            return {}
        if not isinstance(turn, str) or not turn:
            raise BadRequest("turn", "the name of a turn", turn)
        if step == "end":
            return {"kept": self._hold.end(turn)}
        if step != "begin" or not isinstance(chain, str):
            raise BadRequest("step", "look, begin or end", step)
        ends = self._hold.begin(turn)
        self.hears_of(chain)
        self._is_asked |= body.get("missing") is True
        self._is_begun = True
        self._wake.ring()
        return {"ends": ends, "chain": "" if self._chain is None else self._begun_name}

    def finish(self) -> None:
        """See Archiver."""
        if self._running is None:
            return
        self._stop_us = self._broker.clock.now_us() + round(STOP_SECONDS_MAX * 1e6)
        self._is_stopping = True
        self._wake.ring()
        self._stop_wake.ring()
        self._running.result()

    # --- for backups --------------------------------------------------------------------------

    def check_line(self, archive: Archive, newest: Manifest | None) -> None:
        """See Archiver: the last piece of each strand is compared with what is served here."""
        if newest is None or not newest.in_strands:
            return
        serve_used(self._broker)
        clock, bucket = self._broker.clock, archive.bucket
        strange = self._strange(strands_of(bucket, newest.chain))
        if strange:  # or another broker has it by now, and this one hears of it in a moment
            clock.wait_until(clock.now_us() + MOVED_US, self._stop_wake)
            strange = self._strange(strands_of(bucket, newest.chain))
        if strange:
            raise Refused(
                f"{strange}, which was archived behind backup {newest.id} at {bucket.url}: an old "
                "copy was put in place; restore that backup, or begin anew with a full one"
            )

    def _strange(self, strands: list[LogChain]) -> str:
        """What tells that strands are not of the journals that are served here; "" = nothing."""
        for strand, piece in last_pieces(strands):
            for name, one in self._hold.published().items():
                strange = self._strangeness(piece, name, one)
                if strange:
                    return f"{strange}, of {strand.name}"
        return ""

    def _strangeness(self, piece: LogPiece, name: str, one: Publication) -> str:
        """What tells that a piece is not of this journal, in words; "" = nothing does."""
        if piece.reached.get(name, 0) > one.tail:
            return f"these journals are older than piece {piece.number} of it, in log {name}"
        slices = (found for found in piece.slices if found.log == name)
        if any(differs(found, one.journal, self._cipher(name)) for found in slices):
            return f"piece {piece.number} of it is of another copy of these journals, in log {name}"
        return ""

    def note(self) -> ArchivePosition:
        """See StrandArchiver."""
        built, chain = self._built, self._chain  # before the tails
        logs = {name: one.tail for name, one in self._hold.published().items()}
        return ArchivePosition("" if chain is None else self._begun_name, False, built, logs)

    def tails(self) -> dict[str, int]:
        """A log that nobody has open is not in a backup, and is archived from its beginning."""
        return {}

    def bounds(self, note: ArchivePosition, partitions: Iterable[HeldPartition]) -> dict[str, int]:
        """See Archiver."""
        found = {}
        for held in partitions:
            name = log_name(held.served.number, held.core.number)
            # What is published may not be answered yet, and so not be in the backup.
            found[name] = min(note.logs.get(name, held.position), held.position)
        return found

    def follow(self, note: ArchivePosition, manifest: Manifest) -> None:
        """See Archiver: of a broker that is alone."""
        self.backed_up(note, manifest.logs)
        self.begins(manifest.chain)

    def begins(self, chain: str) -> None:
        """See StrandArchiver."""
        self.hears_of(chain)
        self._wake.ring()

    def hears_of(self, chain: str) -> None:
        """The newest backup begins this chain, or goes on with it; "" = that is not known."""
        if chain:
            self._told = chain

    # --- its thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        clock = self._broker.clock
        # The strand is called by the name in the cluster.
        while self._broker.node is not None and self._turns() is None and not self._is_stopping:
            clock.wait_until(clock.now_us() + LOOK_US, self._stop_wake)
        if not self._is_stopping:
            super()._run()

    def _is_cut_begun(self) -> bool:
        is_begun, self._is_begun = self._is_begun, False
        return is_begun

    def _end(self) -> None:
        turns = self._turns()
        self._let_catalogue_go()
        if turns is not None:
            turns.leave_cuts()

    @property
    def _logs(self) -> LogTurn:
        """A journal on a server is dropped with its topic, and no cut behind that has it."""
        return self._no_logs

    @property
    def _node(self) -> str:
        turns = self._turns()
        return ALONE if turns is None else turns.node

    def _told_chain(self) -> int:
        return int(self._told, 16) if self._told else 0

    def _is_archived(self, name: str, position: int) -> None:
        """The strands tell the others."""

    def _take_over(self) -> None:
        with self._guard:
            covered = dict(self._covered)
        super()._take_over()
        if covered:
            self._known = farther(self._known, covered)
            gone = {name for name in self._reached if name not in covered and name != OWN_NAME}
            gone -= self._hold.published().keys()
            for name in gone & self._absent:  # its topic is gone, and no backup would need it
                del self._reached[name]
            self._absent = gone

    def _resume(self) -> bool:
        self._open, self._older_us = {}, {}
        self._let_catalogue_go()
        return super()._resume()

    def _cipher(self, name: str) -> Cipher | None:
        encryption = self.journals.encryption
        return None if encryption is None else encryption.cipher(cipher_name(name))

    # --- a turn -------------------------------------------------------------------------------

    def _store_turn(self) -> None:
        self._follow_logs()
        if self._leads():
            self._compare_chain()
            self._cut = self._taken_cut()
        changed_us = self._hold.take_changed()
        self._oldest_us = self._oldest_us or changed_us
        ends = {name: one.tail for name, one in self._open.items() if not one.has_ended}
        if self._cut is not None:
            ends[OWN_NAME] = self._cut.ends[OWN_NAME]
        is_new = any(end > self._reached.get(name, 0) for name, end in ends.items())
        if is_new or self._cut is not None:
            at_ms = 0 if self._cut is None else self._cut.at_ms
            if not self._store_up_to(at_ms, ends):
                return
        self._oldest_us = 0
        self._see_to_others()

    def _follow_logs(self) -> None:
        """Where to go on in partitions that were read here since the last turn."""
        there = self._hold.published()
        self._open = {name: one for name, one in self._open.items() if there.get(name) is one}
        new = {name: one for name, one in there.items() if name not in self._open}
        if not new:
            return
        self._read_strands()
        for name, one in new.items():
            at = max(self._reached.get(name, 0), self._known.get(name, 0))
            if at > one.tail:
                self._check_older(name)
                continue
            for piece in self._unchecked:
                strange = self._strangeness(piece, name, one)
                if strange:
                    raise ChainError(strange)
            self._older_us.pop(name, None)
            self._reached[name], self._open[name] = at, one
        # Who had one before may have drawn a data key for it, and not lived to archive that.
        self._told_key = 0

    def _read_strands(self) -> None:
        """Know how far the strands have what others had. Raises JournalDamaged, Unavailable."""
        url = self._broker.settings.backup.url
        bucket = open_bucket(url, patience_seconds=PATIENCE_SECONDS)
        for _, piece in last_pieces(strands_of(bucket, self._begun_name)):
            if piece.fence:
                self._check_fence(bucket)
            self._known = farther(self._known, piece.reached)

    def _check_older(self, name: str) -> None:
        """More of a journal is archived than it has: perhaps another broker's by now."""
        now_us = self._broker.clock.now_us()
        since_us = self._older_us.setdefault(name, now_us)
        if now_us - since_us >= OLDER_US:
            raise ChainError(f"these journals are older than what is archived of log {name}")

    def _slice(self, name: str, after: int, last: int, byte_count_max: int) -> LogSlice | None:
        if name == OWN_NAME:
            return super()._slice(name, after, last, byte_count_max)
        one = self._open[name]
        bounds, cipher = (after, last), self._cipher(name)
        try:
            return record_slice(one.journal, name, one.number, bounds, byte_count_max, cipher)
        except Exception as failure:
            if one.has_ended:  # it is closed, perhaps for another broker
                return None
            if isinstance(failure, JournalDamaged):
                raise ChainError(f"{failure}; it was not archived before") from failure
            raise

    def _see_to_others(self) -> None:
        """Have all partitions read that are used and served here, if one is missing in cuts."""
        now_us = self._broker.clock.now_us()
        if not self._is_asked or now_us - self._served_us < SERVE_US:
            return
        self._served_us, self._is_asked = now_us, False
        broker, there = self._broker, self._hold.published().keys()
        for row in broker.catalogue_state().rows.values():
            for name in broker.served_names(row.topic) if row.is_used else ():
                try:
                    served = broker.runtime(name) if broker.serves(name) else None
                except DejaQError as error:
                    log.debug("%s is not read: %s", name, error)
                    continue
                if served is not None and any(
                    log_name(served.number, number) not in there
                    for number in served.partitions.numbers
                ):
                    served.ring_all()

    # --- cuts ---------------------------------------------------------------------------------

    def _leads(self) -> bool:
        turns = self._turns()
        if self._broker.node is not None and (turns is None or not turns.leads_cuts()):
            self._let_catalogue_go()
            self._cut_due_us = 0
            return False
        if self._catalogue is None:
            self._read_strands()
            opener = partial(self._records.open_beside, JOURNAL, 0)
            self._catalogue = CatalogueSlices(opener, self._cipher(OWN_NAME))
        at = max(self._reached.get(OWN_NAME, 0), self._known.get(OWN_NAME, 0))
        self._reached[OWN_NAME] = at
        return True

    def _let_catalogue_go(self) -> None:
        catalogue, self._catalogue = self._catalogue, None
        if catalogue is not None:
            catalogue.close()

    def _taken_cut(self) -> LogCut | None:
        assert self._catalogue is not None
        cuts = self._cuts
        try:
            return cuts.taken(self._catalogue, self._begun_name, self._last_ends)
        except Unavailable as failure:  # with the next turn; what is new is stored all the same
            self._fail(failure)
            return None
        finally:
            now_us = self._broker.clock.now_us()
            self._cut_due_us = (self._cut_due_us or now_us) if cuts.is_due else 0
            self._is_asked |= cuts.is_missing
            self.hears_of(cuts.chain)
