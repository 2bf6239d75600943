"""CatalogueLog: the journal of the catalogue, read, followed and appended to.

Room: catalogue. Any thread may call it; one appends at a time, for all who wait with it.
Holds: a change is durable before it is seen; it is planned upon all changes before it, and if
somebody else was quicker it is planned again upon theirs; what is in a snapshot is not read again.
See: state.py, what the changes make; journal/interface.py, whose journal this is like any other.

Changes that come while one append is on its way go into the next one together: so many threads
that each make a topic wait for few syncs. Where several brokers have the journal, each plans upon
what it has read to the end; a read that began after somebody asked for one serves them, too.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from dejaqueue.catalogue.changes import FORMAT, Change, MadeTopic, from_bytes, to_bytes
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.errors import DejaQError, Fenced, InternalError, JournalDamaged, Refused, Unavailable
from dejaqueue.journal.interface import (
    Entry,
    EntryKind,
    Int64s,
    Journal,
    JournalStore,
    SnapshotFile,
)
from dejaqueue.model import Topic

JOURNAL = "=catalogue"
"""What the journal is called in the store; no topic can be called so."""
TRIES = 16
SNAPSHOT_CHANGES_MIN = 1_000
"""A snapshot is due after so many changes …"""
SNAPSHOT_TOPICS_SHARE = 4
"""… and when there were as many as this part of the topics: what snapshots write stays a few times
what the changes do, and a start reads few of them."""
_EPOCH = 1

log = logging.getLogger("dejaqueue.catalogue")

Plan = Callable[[], Change | None]
"""Asked when all changes before are known: what to change; None = nothing. Raises what is wrong."""


class _Waiting:
    """A change that somebody waits for.

    Attributes:
        turn: done when it was made, or when its maker is to append for all who wait by then.
    """

    __slots__ = ("error", "is_done", "plan", "turn")

    def __init__(self, plan: Plan, turn: Future[None] | None) -> None:
        self.plan = plan
        self.turn = turn
        self.is_done = False
        self.error: BaseException | None = None


class CatalogueLog:
    """The catalogue of a store of journals.

    Args:
        store: has the journal under the name JOURNAL.
        writing: held while something is appended.
        snapshot_writer: where snapshots are written; None = by whoever makes a change.
        now_ms: the time that is noted with each change.
        new_future: makes what a thread waits for until its change was made.

    Attributes:
        state: after all changes that are known; changed while `writing` is held.
        coming: topics that are being made by the append that is planned now, by name: a plan looks
            at them, too.

        repairs: what was damaged or torn when its journal was opened last, in words.

    Raises:
        JournalDamaged, Refused: it is of a later version. Unavailable.
    """

    def __init__(
        self,
        store: JournalStore,
        writing: AbstractContextManager[object] | None = None,
        snapshot_writer: Executor | None = None,
        now_ms: Callable[[], int] = lambda: 0,
        new_future: Callable[[], Future[None]] = Future,
    ) -> None:
        self._store = store
        self._writing = threading.Lock() if writing is None else writing
        self._snapshot_writer = snapshot_writer
        self._now_ms = now_ms
        self._guard = threading.Lock()
        self._new_future = new_future
        self._waiting: list[_Waiting] = []
        self._is_appending = False
        self._reads_begun = self._reads_done = 0
        self._journal: Journal | None = None
        self._snapshot_revision = 0
        self._is_writing_snapshot = False
        self._truncatable: tuple[Journal, int] | None = None
        """What a snapshot covers, for whoever appends next: who appends truncates, too."""
        self.state = CatalogueState()
        self.coming: dict[str, Topic] = {}
        self.repairs: list[str] = []
        with self._writing:
            self._open()

    @property
    def revision(self) -> int:
        """Up to which change the catalogue is known here."""
        return self.state.revision

    def copied(self) -> CatalogueState:
        """A copy of the state, between two changes."""
        with self._writing:
            return self.state.copy()

    def read(self) -> None:
        """Know every change that was durable when this was called, whoever made it.

        Raises:
            JournalDamaged. Unavailable: the journal cannot be read at the moment.
        """
        with self._guard:
            wanted = self._reads_begun + 1
        with self._writing:
            if self._reads_done < wanted:
                self._read_to_end()

    def change(self, plan: Plan) -> None:
        """Make a change; it is durable when this returns.

        Args:
            plan: asked once, or again where somebody else changed the catalogue meanwhile.

        Raises:
            ResourceExhausted: no room; nothing has changed. Unavailable: whether it has is not
                known. Whatever `plan` raises.
        """
        error = self.change_all([plan])[0]
        if error is not None:
            raise error

    def change_all(self, plans: Sequence[Plan]) -> list[BaseException | None]:
        """Make several changes, of different topics, with one append as a rule; they are durable
        when this returns. Per change why it was not made, as `change` raises; None = it was."""
        with self._guard:
            mine = [
                _Waiting(plan, self._new_future() if self._is_appending else None) for plan in plans
            ]
            self._is_appending = True
            self._waiting += mine
        # Whoever appends takes all that wait, so what becomes of the first becomes of all.
        if mine[0].turn is not None:
            mine[0].turn.result()
        if not mine[0].is_done:
            self._make_all_waiting()
        return [one.error for one in mine]

    def _make_all_waiting(self) -> None:
        """Make the changes of all who wait; then it is the turn of one who came meanwhile.

        Each waits for a bell of its own: with one lock for all, whoever is done has to get it
        before the next can append (measured with 16 threads: 1,400 changes a second, not 6,600).
        """
        group: list[_Waiting] = []
        try:
            with self._writing:
                with self._guard:
                    group, self._waiting = self._waiting, []
                self._make(group)
        finally:
            with self._guard:
                following = self._waiting[:1]
                self._is_appending = bool(following)
            for one in (*following, *group):
                if one.turn is not None and not one.turn.done():  # of who appended it was
                    one.turn.set_result(None)

    def _make(self, group: list[_Waiting]) -> None:
        """Make the changes of all who wait, with one append as a rule. Does not raise."""
        left, tries = group, TRIES
        try:
            while left and tries:
                self._read_to_end()
                changes, later = self._planned(left)
                if not changes or self._append(changes):
                    left = later
                else:
                    tries -= 1
            if left:
                raise Unavailable("others keep changing the catalogue", 100)
        except Exception as wrong:  # noqa: BLE001 - each of them is told
            text = f"catalogue: {type(wrong).__name__}: {wrong}"
            failure = wrong if isinstance(wrong, DejaQError) else InternalError(text)
            for one in left:
                one.error = one.error or failure
        for one in group:
            one.is_done = True

    def _planned(self, group: list[_Waiting]) -> tuple[list[Change], list[_Waiting]]:
        """What to append; and who has to wait, as their topic is changed by that already."""
        changes: dict[str, Change] = {}
        later = []
        self.coming = {}
        for one in group:
            one.error = None
            try:
                change = one.plan()
            except Exception as wrong:  # noqa: BLE001 - whoever asked gets it
                one.error = wrong
                continue
            if change is None:
                continue
            if change.name in changes:  # it was planned without knowing of that
                later.append(one)
                continue
            changes[change.name] = change
            if isinstance(change, MadeTopic):
                self.coming[change.name] = change.topic
        return list(changes.values()), later

    def _append(self, changes: list[Change]) -> bool:
        """Append and apply; False: somebody else was quicker."""
        journal, state, now_ms = self._journal, self.state, self._now_ms()
        known = state.revision
        assert journal is not None
        entries = [
            Entry(EntryKind.CATALOGUE, now_ms, (FORMAT, 0, 0, 0), extra=to_bytes(change))
            for change in changes
        ]
        try:
            journal.append(entries, state.revision, _EPOCH)
        except Fenced:
            self._read_to_end()
            if state is self.state and state.revision == known:
                # A part of an append stands there that nobody may end: who opens it anew appends
                # behind that.
                self._let_go()
            return False
        except Unavailable:
            if journal.reopens:
                self._let_go()
            raise
        for change in changes:
            state.apply(change, state.revision + 1)
        self.coming = {}
        self._snapshot_if_due()
        return True

    # --- reading ------------------------------------------------------------------------------

    def _read_to_end(self) -> None:
        """Know what is in the journal now; it is opened if need be."""
        with self._guard:
            self._reads_begun = mine = self._reads_begun + 1
        if self._journal is not None:
            self._follow(self._journal)
        if self._journal is None:
            self._open()
        self._reads_done = mine

    def _follow(self, journal: Journal) -> None:
        """Know what others have appended; where it has to be opened anew it is let go of."""
        known = self.state.revision
        try:
            if journal.follow() > self.state.revision:
                self._take_in(journal)
        except (Fenced, JournalDamaged) as gone:
            # Others may have dropped what a newer snapshot covers: opening it tells.
            log.info("the catalogue is opened again: %s", gone)
            self._let_go()
            return
        if known != self.state.revision and self._is_snapshot_due():
            # Who made the last change writes it. What is known here of the journal's appends grows
            # with each; it begins anew with a snapshot.
            self._snapshot_revision = self.state.revision
            self._let_go()

    def _take_in(self, journal: Journal) -> None:
        for position, _, entry in journal.scan(self.state.revision):
            _check_format(entry.params[0])
            self.state.apply(from_bytes(bytes(entry.extra)), position)

    def _open(self) -> None:
        """Open the journal, and know what is in it."""
        journal = self._store.open(JOURNAL, 0)
        try:
            snapshot = journal.latest_snapshot()
            if snapshot is not None and snapshot.position > self.state.revision:
                self.state = _read_snapshot(journal, snapshot.meta, snapshot.files)
                if self.state.revision != snapshot.position:
                    raise JournalDamaged(f"a snapshot of the catalogue is of {snapshot.position}")
            if snapshot is not None:
                self._snapshot_revision = max(self._snapshot_revision, snapshot.position)
            if journal.tail < self.state.revision:
                raise JournalDamaged(
                    f"the catalogue ends at change {journal.tail}, and {self.state.revision} of "
                    "them were known: it was replaced by an older copy"
                )
            self._take_in(journal)
            journal.adopt(_nothing())
        except BaseException:
            journal.close()
            raise
        self.repairs = journal.repairs
        level = logging.ERROR if journal.cut_bytes else logging.WARNING
        for repair in self.repairs:
            log.log(level, "the catalogue: %s; it is read without", repair)
        self._journal = journal

    def _let_go(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()

    def close(self) -> None:
        """Let go of the journal; the next change opens it again. Twice is fine."""
        with self._writing:
            self._let_go()

    # --- snapshots ----------------------------------------------------------------------------

    def _snapshot_if_due(self) -> None:
        covered, self._truncatable = self._truncatable, None
        if covered is not None and covered[0] is self._journal:
            covered[0].truncate(covered[1])
        if self._is_writing_snapshot or not self._is_snapshot_due():
            return
        self._is_writing_snapshot = True
        journal, copy = self._journal, self.state.copy()
        assert journal is not None
        self._snapshot_revision = copy.revision
        if self._snapshot_writer is None:
            self._write_snapshot(journal, copy)
            return
        try:
            self._snapshot_writer.submit(self._write_snapshot, journal, copy)
        except RuntimeError:  # it was shut down: the journal has everything
            self._is_writing_snapshot = False

    def _is_snapshot_due(self) -> bool:
        since = self.state.revision - self._snapshot_revision
        return since >= max(SNAPSHOT_CHANGES_MIN, len(self.state.rows) // SNAPSHOT_TOPICS_SHARE)

    def _write_snapshot(self, journal: Journal, state: CatalogueState) -> None:
        """Have the journal begin later. What fails is tried again when the next one is due."""
        try:
            journal.put_snapshot(state.revision, *snapshot_of(state))
            self._truncatable = journal, state.revision
        except DejaQError as failure:
            log.warning("the catalogue has no snapshot of %d: %s", state.revision, failure)
        finally:
            self._is_writing_snapshot = False


def snapshot_of(state: CatalogueState) -> tuple[str, list[SnapshotFile]]:
    """A snapshot of the catalogue, as its journal has it: what it says of itself, and its file."""
    return f'{{"format":{FORMAT}}}', [SnapshotFile(f"topics.{state.revision}", state.to_bytes())]


def _nothing() -> Iterator[Int64s]:
    """Locators of no row: entries of the catalogue have none."""
    return iter((np.zeros(0, dtype=np.int64),))


def _read_snapshot(journal: Journal, meta: str, files: tuple[str, ...]) -> CatalogueState:
    values: dict[str, Any] = json.loads(meta)
    _check_format(values.get("format"))
    return CatalogueState.from_bytes(journal.read_snapshot_file(files[0]))


def _check_format(found: object) -> None:
    if found != FORMAT:
        raise Refused(f"topic catalogue has version {found}, this is {FORMAT}")
