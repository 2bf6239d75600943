"""The archiver: what becomes durable in the logs of a broker is stored soon, between two backups.

A turn reads where all logs end, at one moment, and stores what is new in them as one piece behind
the newest backup. Nothing is stored while nothing is appended. What is in the pieces need not be
looked at here: entries are stored as they are in the log.

Room: broker. A thread of its own, while `backup.archive_interval_ms` is set; appends tell it that
there is something, and wait for nothing.
Holds: pieces have all entries of each log behind the newest backup, without a gap; an instant that
a piece says is one cut through all logs, and all that was acknowledged by then is in it; one piece
is in memory, however far behind the archive is; a piece is stored again, byte by byte the same,
until the store has it.
See: journal/segments/log_turn.py, why it is one cut; backup/log_chain.py, where pieces are;
backups.py, whose backups chains follow; docs/adr/0078-entries-are-archived-as-they-come.md.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Any, Final, NamedTuple, Protocol

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.fence import Fence, read_fence
from dejaqueue.backup.log_chain import LogChain
from dejaqueue.backup.log_pieces import LogPiece, PieceScratch, digest_of, farther
from dejaqueue.backup.manifest import Manifest
from dejaqueue.broker.backup.archived_line import check_line, strangeness
from dejaqueue.broker.backup.cut import CutPort, HeldPartition, serve_used
from dejaqueue.broker.backup.lineage import Lineage
from dejaqueue.broker.site import Site
from dejaqueue.broker.topic.cluster_port import ClusterPort
from dejaqueue.clock import Wake
from dejaqueue.connections.bucket import Bucket
from dejaqueue.connections.bucket_urls import open_bucket
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    JournalDamaged,
    Refused,
    ResourceExhausted,
    Unavailable,
)
from dejaqueue.journal.interface import JournalStore
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.journal.segments.log_turn import LogSlice, LogTurn, read_slice
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.metrics import Histogram
from dejaqueue.settings import BrokerSettings

PIECE_BYTES: Final = 8 << 20
"""A piece has no more, but for a single entry that is larger: what does not fit waits for the
next, in the journal."""
PATIENCE_SECONDS: Final = 5
"""So long a request to the store is made again by the library; then the archiver counts it as
failed, says so, and goes on trying."""
AGAIN_MS: Final = 100
AGAIN_MS_MAX: Final = 5_000
"""Between tries of a store that is away."""
STOP_SECONDS_MAX: Final = 10.0
"""A broker that stops waits so long for its last piece to be stored."""
KEEP_US: Final = 900_000_000
"""Logs keep nothing more for an archive that is further behind, as for backups (archive_floor)."""
LATE_MS: Final = 5_000
"""An archive that is further behind is a warning: a store that is slow for once is none."""
SAY_US: Final = 60_000_000
"""How often the log says that a store is away."""

log = logging.getLogger("dejaqueue.backup")


class ArchiverPort(CutPort, Protocol):
    """A broker, as its archiver sees it."""

    store: JournalStore
    settings: BrokerSettings
    node: ClusterPort | None
    site: Site

    def replaced(self, fence: Fence) -> None: ...  # noqa: D102


class ArchivePosition(NamedTuple):
    """Where an archive stood shortly before a cut.

    Attributes:
        chain: the chain that follows the backup.
        is_new: it begins with this backup.
        built: the last piece of it all of whose entries are before the cut.
        logs: position of the last entry of each log.
    """

    chain: str
    is_new: bool
    built: int
    logs: dict[str, int]


class ChainError(Exception):
    """The chain cannot go on; a backup begins another one."""


class OtherPieceError(Exception):
    """There is another piece under a number."""


class _ReplacedError(Exception):
    """A standby has taken the place of this broker."""

    def __init__(self, fence: Fence) -> None:
        super().__init__(fence.told())
        self.fence = fence


class Archiver:
    """Archives what a broker's logs get.

    Attributes:
        pieces, stored_bytes, failures: that were stored since the start, and tries that failed.
        waits: how long entries were durable here, and not in the archive, µs; the oldest ones of
            each turn.
    """

    def __init__(self, broker: ArchiverPort, executor: Executor) -> None:
        self._broker, self._executor = broker, executor
        self._wake, self._stop_wake, self._is_stopping = Wake(), Wake(), False
        self._running: Future[None] | None = None
        self._guard = threading.Lock()
        """Over what backups tell the archiver's thread."""
        self._begun: tuple[str, Manifest] | None = None
        self._give_up_to = self._give_up_next = 0
        self._covered: dict[str, int] = {}
        self._chain: LogChain | None = None
        self._ended: LogChain | None = None
        """The one before, of which there are pieces until another begins."""
        self._first, self._number, self._built = 1, 0, 0
        self._previous = ""
        self._reached: dict[str, int] = {}
        self._buffer = PieceScratch()
        self._store_id = ""
        self._told_key = 0
        self._changed_us = self._oldest_us = self._said_us = self._stop_us = 0
        self._broken, self._is_replaced = "", False
        self.pieces = self.stored_bytes = self.failures = 0
        self.waits = Histogram()

    # --- any thread ---------------------------------------------------------------------------

    @property
    def holds_turns(self) -> bool:
        """Whether partitions are to say what is durable in them before anybody hears of it."""
        return False

    @property
    def is_wanted(self) -> bool:
        """Whether the settings have it."""
        return self._broker.settings.backup.archive_interval_ms > 0

    def check(self) -> None:
        """Refuse settings that cannot be met. Raises BadRequest."""
        settings = self._broker.settings.backup
        if not self.is_wanted:
            return
        name = "backup.archive_interval_ms"
        if not settings.url:
            raise BadRequest(name, "0 without backup.url", settings.archive_interval_ms)
        if not self._fits():
            raise BadRequest(
                name,
                "0, but for journals in a directory, of one process or several, or on servers",
                settings.archive_interval_ms,
            )

    def _fits(self) -> bool:
        """Whether journals are such that they can be archived."""
        store = self._broker.store
        return self._broker.node is None and isinstance(store, SegmentStore) and not store.is_shared

    def check_active(self) -> None:
        """Refuse to serve if a standby was promoted, as far as the archive can be asked. Before
        anything is served. Raises NotActive."""
        if not self.is_wanted or self._broker.site.stands_by:
            return
        url = self._broker.settings.backup.url
        self._logs.keep({})
        try:
            self._check_fence(open_bucket(url, patience_seconds=PATIENCE_SECONDS))
        except _ReplacedError as wrong:
            self._broker.replaced(wrong.fence)
            self._broker.site.check_reads()
        except (Unavailable, JournalDamaged) as failure:
            log.error("whether a standby was promoted is not known: %s", failure)

    def _check_fence(self, bucket: Bucket) -> None:
        """Raise _ReplacedError if a standby was promoted. Raises Unavailable, JournalDamaged."""
        fence = read_fence(bucket, Lineage(self.journals).store)
        if fence is not None:
            raise _ReplacedError(fence)

    def start(self) -> None:
        """Archive from now on, if the settings have it."""
        if not self.is_wanted:
            return
        self._begin_to_follow()
        self._running = self._executor.submit(self._run)

    def _begin_to_follow(self) -> None:
        self.store.follow(self._hear)

    def hear(self, body: dict[str, Any]) -> dict[str, Any]:
        """Do a step of a turn that another broker of the cluster leads. Raises Refused."""
        raise Refused("nothing is archived here that would have turns")

    def finish(self) -> None:
        """Partitions are closed next: archive what has to be read from them. Returns when that is
        done, or takes too long."""

    def close(self) -> None:
        """Store what there is, for a while, and return. Nothing is appended any more."""
        self._stop_us = self._broker.clock.now_us() + round(STOP_SECONDS_MAX * 1e6)
        self._is_stopping = True
        self._wake.ring()
        self._stop_wake.ring()
        if self._running is not None:
            self._running.result()
        self._executor.shutdown()

    def lag_us(self) -> int:
        """For how long the oldest entry that is not in the archive is durable; 0 = there is
        none."""
        # In this order: a turn notes the oldest first, and takes what changed away behind that.
        changed_us = self._changed_us
        oldest_us = self._oldest_us or changed_us
        return max(0, self._broker.clock.now_us() - oldest_us) if oldest_us else 0

    def trouble(self) -> str:
        """What is wrong, in words for everybody; "" = nothing."""
        if not self.is_wanted:
            return ""
        if self._broken:
            return "nothing is archived until the next backup is done: the log says why"
        lag_us = self.lag_us()
        if lag_us <= LATE_MS * 1_000:
            return ""
        return f"the archive is {lag_us // 1_000_000:,} s behind: the log says why"

    def _hear(self) -> None:
        """A log got its first entries in this turn; on the thread that appends."""
        if not self._changed_us:
            self._changed_us = self._broker.clock.now_us()
        self._wake.ring()

    # --- for backups --------------------------------------------------------------------------

    def check_line(self, archive: Archive, newest: Manifest | None) -> None:
        """Refuse to go on from a backup behind which more was archived than is here. Raises as
        `check_line` of archived_line.py; as `serve_used`."""
        serve_used(self._broker)
        check_line(archive, newest, self.store)

    def note(self) -> ArchivePosition:
        """Where the archive stands: before the workers stop for a cut."""
        built, chain = self._built, self._chain  # before the tails
        logs = {name: one.tail for name, one in self.store.open_logs().items()}
        if chain is None:
            return ArchivePosition(os.urandom(8).hex(), True, 0, logs)
        return ArchivePosition(chain.name, False, built, logs)

    def bounds(self, note: ArchivePosition, partitions: Iterable[HeldPartition]) -> dict[str, int]:
        """Behind which position of each log are all entries that are not in a cut."""
        names = {one: name for name, one in self.store.open_logs().items()}
        found = dict(note.logs)
        for held in partitions:
            journal = held.journal
            assert isinstance(journal, SegmentJournal)
            part, name = journal.log.part(journal.number), names.get(journal.log)
            if name in found and part.tail > held.position:
                # It was durable before the note, and its partition was told only after the cut.
                behind = part.runs.position_of(held.position + 1) - 1
                found[name] = min(found[name], max(0, behind))
        return found

    def first_needed(self, note: ArchivePosition, logs: dict[str, int]) -> int:
        """Number of the first piece that is needed behind a backup.

        Args:
            logs: what `bounds` made of the note.
        """
        if logs == note.logs:
            return note.built + 1
        with self._guard:  # those that a backup before it needs, and that were not given up yet
            return 1 if note.is_new else max(self._give_up_next + 1, self._first)

    def follow(self, note: ArchivePosition, manifest: Manifest) -> None:
        """A backup is there: what is in it need not be archived any more. Raises nothing."""
        with self._guard:
            if note.is_new:
                self._begun, self._give_up_next = (note.chain, manifest), 0
            else:
                self._covered = dict(manifest.logs)
                # One backup late: whoever restores from the one before may be reading them.
                self._give_up_to = max(self._give_up_to, self._give_up_next)
                if manifest.logs == note.logs:
                    self._give_up_next = note.built
        self._wake.ring()

    # --- its thread ---------------------------------------------------------------------------

    @property
    def journals(self) -> JournalStore:
        """All of the broker."""
        return self._broker.store

    @property
    def store(self) -> SegmentStore:
        """The journals, where the settings have them archived."""
        store = self._broker.store
        assert isinstance(store, SegmentStore)
        return store

    def _run(self) -> None:
        clock, next_us = self._broker.clock, 0
        self._attempt(self._resume_patiently)
        while True:
            self._attempt(self._take_over)
            is_new = self._chain is not None and self._changed_us > 0
            if is_new and (self._is_stopping or clock.now_us() >= next_us):
                interval_ms = self._broker.settings.backup.archive_interval_ms
                next_us = clock.now_us() + interval_ms * 1_000
                self._attempt(self._turn)
            elif self._is_stopping:
                return
            else:
                clock.wait_until(next_us if is_new else None, self._wake)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Do something; what goes wrong ends the chain, and the next backup begins another."""
        if self._is_replaced:
            self._changed_us = 0
            return
        try:
            work()
        except _ReplacedError as wrong:
            self._is_replaced = True
            self._broker.replaced(wrong.fence)
        except (ChainError, DejaQError) as wrong:
            self._break(str(wrong))
        except Exception:  # our bug: the next backup begins another chain
            log.exception("the archive")
            self._break("an error in the broker")

    @property
    def _logs(self) -> LogTurn:
        """What keeps entries until they are archived."""
        return self.store.turn

    def _break(self, why: str) -> None:
        self._logs.keep(None)
        self._ended, self._chain, self._broken = self._chain or self._ended, None, why
        self._oldest_us = self._oldest_us or self._broker.clock.now_us()
        where = open_bucket(self._broker.settings.backup.url).url
        log.error("the archive at %s ends: %s; it goes on with the next backup", where, why)

    def _resume_patiently(self) -> None:
        while not self._is_stopping:
            try:
                self._resume()
            except Unavailable as failure:
                self._fail(failure)
                self._wait_again(AGAIN_MS_MAX)
            else:
                self._said_us = 0
                self._logs.keep(self._reached if self._chain is not None else None)
                return

    def _wait_again(self, pause_ms: int) -> None:
        """Wait before a request is made again; less if the broker stops."""
        clock = self._broker.clock
        pause_ms = AGAIN_MS if self._is_stopping else pause_ms
        clock.wait_until(clock.now_us() + pause_ms * 1_000, self._stop_wake)

    def _bucket_chain(self, name: str) -> LogChain:
        url = self._broker.settings.backup.url
        return LogChain(open_bucket(url, patience_seconds=PATIENCE_SECONDS), name)

    def _resume(self) -> bool:
        """Go on with the chain of the life before; False if there is none.

        Raises:
            ChainError, Refused: it is not that of these journals. JournalDamaged, Unavailable.
        """
        serve_used(self._broker)
        lineage = Lineage(self.store)
        try:
            archive = Archive.open(self._broker.settings.backup.url)
        except BadRequest:
            return False  # there is no backup yet
        self._check_fence(archive.bucket)
        manifest = archive.newest(lineage.store)
        if manifest is None or not manifest.chain:
            return False
        lineage.check(archive.bucket.url, manifest)
        chain = self._bucket_chain(manifest.chain)
        numbers = chain.numbers()
        reached, previous = dict(manifest.logs), ""
        if numbers:
            stored = chain.stored(numbers[-1])
            piece = chain.decode(numbers[-1], stored)
            assert stored is not None
            strange = strangeness(piece, self.store)
            if strange:
                raise ChainError(strange)
            previous = digest_of(stored)
            reached = farther(reached, piece.reached)
        self._first, self._number = (numbers.start, numbers[-1]) if numbers else (1, 0)
        self._built, self._store_id = self._number, manifest.store
        self._previous, self._reached, self._told_key = previous, reached, 0
        self._chain = chain
        self._changed_us = self._changed_us or self._broker.clock.now_us()
        return True

    def _take_over(self) -> None:
        """What backups have told since."""
        with self._guard:
            begun, self._begun = self._begun, None
            covered, self._covered = self._covered, {}
            give_up_to, self._give_up_to = self._give_up_to, 0
        if begun is not None:
            name, manifest = begun
            try:
                self._check_fence(open_bucket(self._broker.settings.backup.url))
            except Unavailable as failure:
                self._fail(failure)
                with self._guard:
                    self._begun = self._begun or begun
                self._wait_again(AGAIN_MS)
                self._wake.ring()
                return
            self._end_chains_but(name)
            self._first, self._number, self._built, self._previous = 1, 0, 0, ""
            self._reached, self._told_key = dict(manifest.logs), 0
            self._store_id = manifest.store
            self._chain, self._broken = self._bucket_chain(name), ""
            self._logs.keep(self._reached)
            self._changed_us = self._changed_us or self._broker.clock.now_us()
        elif self._chain is not None and covered:
            self._reached = farther(self._reached, covered)
            self._logs.keep(self._reached)
            try:
                self._delete_to(self._chain, give_up_to)
            except (Unavailable, ResourceExhausted) as failure:  # with the next backup, then
                log.info("pieces of the archive are left: %s", failure)

    def _delete_to(self, chain: LogChain, number: int) -> None:
        """Delete pieces up to this one, but for the last one: it says where the chain is. Raises
        Unavailable, ResourceExhausted."""
        gone = range(self._first, min(number, self._number - 1) + 1)
        if gone:
            chain.delete(gone)
            self._first = gone.stop

    def _end_chains_but(self, name: str) -> None:
        """A chain before this one follows no backup that anybody would restore."""
        before, self._ended = self._chain or self._ended, None
        if before is not None and before.name != name:
            try:
                before.delete_all()
            except (Unavailable, ResourceExhausted) as failure:
                log.info("pieces of the archive are left: %s", failure)

    # --- a turn -------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Store what all logs have got, up to one moment."""
        clock, turn = self._broker.clock, self.store.turn
        self._oldest_us = self._oldest_us or self._changed_us
        self._changed_us = 0  # in this order: see lag_us
        # What is acknowledged later in this millisecond is in the next turn.
        at_ms = clock.utc_ms() - 1
        turn.number += 1
        ends = {name: one.end_of_turn() for name, one in list(turn.logs.items())}
        if not self._store_up_to(at_ms, ends):
            return
        self._oldest_us = 0
        for name, one in list(turn.logs.items()):
            if one.has_failed and self._reached.get(name, 0) >= one.tail:
                del turn.logs[name]  # it was closed; opened again, it is there again

    def _store_up_to(self, at_ms: int, ends: dict[str, int]) -> bool:
        """Store what logs have up to these ends; False: it is not done, or not all of it."""
        is_last = False
        while not is_last:
            piece, is_last = self._next_piece(at_ms, ends)
            if piece is None:
                break
            self._built = piece.number
            try:
                if not self._put(piece):
                    return False  # it stops, and the store does not answer
            except OtherPieceError:
                # A request of a former life, whose answer it did not live to see; or another
                # copy of these journals, which is refused.
                # Or a standby has ended the chain: that has to be known, however long it takes.
                self._ended, self._chain = self._chain, None
                self._resume_patiently()
                if self._chain is None and not self._is_stopping:
                    raise ChainError(f"piece {piece.number} is another one") from None
                return False
            self._reached = dict(piece.reached)
            self._logs.reach(self._reached)
            if is_last and self._oldest_us:
                self.waits.add(self._broker.clock.now_us() - self._oldest_us)
        return True

    def _next_piece(self, at_ms: int, ends: dict[str, int]) -> tuple[LogPiece | None, bool]:
        """What comes next, and whether that is all up to these ends; None = there is nothing."""
        left, slices, reached, is_last = PIECE_BYTES, [], dict(self._reached), True
        for name, end in ends.items():
            at = reached.get(name, -1)
            if at < 0:  # it came into use since the backup
                segments = self.store.turn.logs[name].listed.segments
                at = segments[0].first - 1 if segments else end
            while at < end and left > 0:
                one = self._slice(name, at, end, left)
                if one is None:  # it went to another broker, which goes on with it
                    end = at
                    break
                slices.append(one)
                left -= len(one.content)
                at = one.last
            is_last = is_last and at == end
            reached[name] = at
        if not slices:
            return None, True
        assert self._chain is not None
        piece = LogPiece(
            self._chain.name,
            self._number + 1,
            self._previous,
            self._store_id,
            at_ms if is_last else 0,
            tuple(slices),
            reached,
            self._new_keys(),
        )
        return piece, is_last

    def _slice(self, name: str, after: int, last: int, byte_count_max: int) -> LogSlice | None:
        try:
            return read_slice(name, self.store.turn.logs[name], after, last, byte_count_max)
        except JournalDamaged as damage:
            raise ChainError(f"{damage}; it was not archived before") from damage

    def _new_keys(self) -> dict[str, str]:
        """Wrapped data keys that the chain may lack."""
        keys = self.journals.encryption
        if keys is None or self._told_key == keys.current(0):
            return {}
        store = self.journals
        texts = {one: store.load_data_key(one) for one in store.data_key_numbers()}
        return {f"{number:016x}": text for number, text in texts.items() if text is not None}

    def _put(self, piece: LogPiece) -> bool:
        """Store a piece, however long that takes; False: the broker stops. Raises
        OtherPieceError."""
        assert self._chain is not None
        stored, clock, again_ms = piece.encode(self._buffer), self._broker.clock, AGAIN_MS
        while True:
            try:
                if not self._chain.put_new(piece.number, stored):
                    raise OtherPieceError
                break
            except (Unavailable, ResourceExhausted) as failure:
                self._fail(failure)
            if self._is_stopping and clock.now_us() >= self._stop_us:
                log.error("what was done last is not archived: the broker stops")
                self._changed_us = 0
                return False
            self._wait_again(again_ms)
            again_ms = min(2 * again_ms, AGAIN_MS_MAX)
        if self._said_us:
            log.info("the archive is stored again")
        self._said_us, self._number, self._previous = 0, piece.number, digest_of(stored)
        keys = self.journals.encryption
        self._told_key = 0 if keys is None else keys.current(0)
        self.pieces += 1
        self.stored_bytes += len(stored)
        return True

    def _fail(self, failure: DejaQError) -> None:
        self.failures += 1
        if self.lag_us() > KEEP_US:
            self._logs.keep(None)
        now_us = self._broker.clock.now_us()
        if not self._said_us or now_us - self._said_us > SAY_US:
            self._said_us = now_us
            log.error("the archive cannot be stored, and is tried again: %s", failure)
