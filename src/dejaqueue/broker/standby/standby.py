"""Standby: what a broker does that follows an archive, from an empty directory to its promotion.

The archive is that of one broker, of several processes, or of a cluster; the standby is one broker.

Room: broker. A thread of its own, which alone reads the archive and applies what is in it; others
ask, and leave a wish to be promoted.
Holds: where the archive goes on without what is here, the newest backup takes the place of that,
and a promotion waits for it; promoted is who stored the fence, and before it serves, everything
that the archive has up to the fence is applied; what was begun goes on after a kill.
See: directory.py, follower.py, record.py; docs/guides/standby.md;
docs/adr/0084-a-standby-follows-the-archive.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.fence import Fence, put_fence, read_fence
from dejaqueue.backup.manifest import Manifest
from dejaqueue.broker.backup.restoring import keys_of
from dejaqueue.broker.standby.directory import StandbyDirectory
from dejaqueue.broker.standby.follower import (
    Follower,
    FollowingEndedError,
    LogGap,
)
from dejaqueue.broker.standby.ports import StandbyPort
from dejaqueue.broker.standby.record import StandbyRecord, StandbyState
from dejaqueue.broker.topic.threads import Running, Threads
from dejaqueue.clock import Wake
from dejaqueue.connections.bucket import Bucket
from dejaqueue.connections.bucket_urls import open_bucket
from dejaqueue.errors import (
    DejaQError,
    InternalError,
    JournalDamaged,
    NotActive,
    Refused,
    Unavailable,
)
from dejaqueue.journal.encryption.data_keys import DataKeys
from dejaqueue.journal.interface import JournalStore
from dejaqueue.times import show_instant

PATIENCE_SECONDS: Final = 5
"""So long the library makes a request again; then this one says so, and goes on trying."""
AGAIN_MS: Final = 1_000
"""Between tries when the archive is away, or something failed."""
CHAIN_LOOK_US: Final = 5_000_000
"""While nothing comes, this often it is looked whether the archive goes on in another chain."""
STRAND_LOOK_US: Final = 1_000_000
"""While something waits for a cut, this often it is looked whether there are other strands: a
broker may have joined."""
NOTE_US: Final = 5_000_000
"""How often it is noted how far it is: a start reads again what came since."""
ANEW_US: Final = 60_000_000
"""Between tries to fill it anew: each reads a whole backup."""
ANEW: Final = "this standby is filled anew with the newest backup"
NEAR_STEPS: Final = 8
"""Who finds a piece or two of each strand, so often one after the other, has caught up."""
CATCH_UP_US: Final = 20_000_000
"""Who has not caught up by then is slower than the others archive: they are ended first."""
STALL_US: Final = 10_000_000
"""So long something waits for a cut before that is told."""
SAY_US: Final = 60_000_000

log = logging.getLogger("dejaqueue.standby")


class _OtherChainError(Exception):
    """The archive goes on where this directory cannot follow: the newest backup has more."""


class Standby:
    """The standby's part of a broker.

    Args:
        where: where this broker serves, in words for people; asked when it is promoted.

    Attributes:
        record: what the directory is; None = it is no standby's, and was not replaced by one.
        follower: who applies entries; None = the archive was not read yet.
    """

    def __init__(self, broker: StandbyPort, where: Callable[[], str]) -> None:
        self._broker, self._where = broker, where
        self._wake, self._stop = Wake(), threading.Event()
        self._directory = StandbyDirectory(broker)
        self._guard = threading.Lock()
        """Over the wish to be promoted."""
        self._wish: Future[dict[str, Any]] | None = None
        self._caught_up_us = self._noted_us = self._looked_us = self._said_us = 0
        self._looked_for_us = 0
        self._gap: LogGap | None = None
        """Entries that were missing when strands were looked for last."""
        self._moved = 0, 0
        """As of when it was when something was applied last, or nothing waited, and when that was
        by its clock."""
        self._damage: tuple[str, int] | None = None
        """What was wrong last, and as of when the standby was then."""
        self._lost: DejaQError | None = None
        self._anew_us = 0
        self._anew_failure: Exception | None = None
        """When it could not be filled anew last, and why."""
        self.record: StandbyRecord | None = None
        self.follower: Follower | None = None
        self.running: Running | None = None
        """Its thread."""
        self.trouble = ""
        """What keeps it from following, in words for everybody; "" = nothing."""

    # --- before the broker serves -------------------------------------------------------------

    @property
    def _url(self) -> str:
        return self._broker.settings.standby.url

    def opened(self, open_store: Callable[[], JournalStore]) -> JournalStore:
        """Open the store, as StandbyDirectory.opened."""
        store, self.record = self._directory.opened(open_store)
        return store

    def prepare(self) -> None:
        """Fill the store, if it is a standby's and empty; before anything else reads it. Raises as
        StandbyDirectory.prepared."""
        if self._broker.site.stands_by:
            self.record = self._directory.prepared(self._broker.store, self.record)

    # --- any thread ---------------------------------------------------------------------------

    def behind_us(self) -> int:
        """For how long it has not seen the end of the archive, µs; 0 = it is none."""
        if not self._broker.site.stands_by:
            return 0
        return max(0, self._broker.clock.now_us() - self._caught_up_us)

    def describe(self) -> dict[str, Any]:
        """Which part of two sites this broker has: `state`, and of a standby how far it is."""
        record = self.record
        if not self._broker.site.stands_by or record is None:
            return {"state": "active"}
        found: dict[str, Any] = {"state": str(record.state), "standby": record.id}
        found |= {"url": open_bucket(self._url).url, "behind_ms": self.behind_us() // 1_000}
        follower = self.follower
        if follower is not None:
            found |= {"as_of_ms": follower.at_ms, "entries": follower.entries}
        return found | ({"trouble": self.trouble} if self.trouble else {})

    def promote(self) -> Future[dict[str, Any]]:
        """Take the place of the broker that is followed.

        Returns:
            Done when this broker serves: `as_of_ms`, up to when it has all that was acknowledged,
            and `took_ms`. With NotActive if another standby was quicker; with Refused, Unavailable
            if it cannot be done now: nothing has changed, or the same call goes on.
        """
        with self._guard:
            if not self._broker.site.stands_by:
                raise Refused("this broker is no standby: it serves already")
            if self._wish is None:
                self._wish = Future()
            wish = self._wish
        self._wake.ring()
        return wish

    def start(self, threads: Threads) -> None:
        """Follow from now on, on a thread."""
        self.running = threads.start("dejaq-standby", self.run)

    def close(self) -> None:
        """Follow no more; twice, or without a start, is fine."""
        self._stop.set()
        self._wake.ring()
        if self.running is not None:
            self.running.join()

    # --- its thread ---------------------------------------------------------------------------

    def run(self) -> None:
        """Follow until this broker is promoted, or stops."""
        clock = self._broker.clock
        self._caught_up_us = clock.now_us()
        while not self._stop.is_set() and self._broker.site.stands_by:
            self._go_on_promoting()
            wait_ms = self._turn()
            if self._wish is None and wait_ms:
                clock.wait_until(clock.now_us() + wait_ms * 1_000, self._wake)
        self._note()
        with self._guard:
            wish, self._wish = self._wish, None
        if wish is not None and not wish.done():
            wish.set_exception(Unavailable("the broker is stopping", 1_000))

    def _go_on_promoting(self) -> None:
        """A promotion that was begun here, and broke off, is wished until it is done."""
        record = self.record
        if record is not None and record.state is StandbyState.PROMOTING:
            with self._guard:
                self._wish = self._wish or Future()

    def _turn(self) -> int:
        """Apply what there is, and promote if that is wished; how long to wait, ms."""
        try:
            if self._wish is not None:
                return 0 if self._promote(self._wish) else AGAIN_MS
            has_more = self._follow()
        except _OtherChainError as wrong:
            return 0 if self._begin_anew(wrong) is None else AGAIN_MS
        except Exception as wrong:  # noqa: BLE001 - it goes on trying
            self._fail(wrong)
            return AGAIN_MS
        self.trouble = self._stall()
        self._said_us = 0
        return 0 if has_more else self._broker.settings.standby.poll_ms

    def _stall(self) -> str:
        """What is wrong if brokers archive, and nothing can be applied; "" = nothing."""
        follower, now_us = self.follower, self._broker.clock.now_us()
        if follower is None or not follower.waits or follower.at_ms != self._moved[0]:
            self._moved = (0 if follower is None else follower.at_ms), now_us
        if now_us - self._moved[1] < STALL_US:
            return ""
        return (
            "something is archived that no cut of all brokers has yet: one may be down, and nobody "
            "has taken over what it serves"
        )

    def _fail(self, wrong: Exception) -> None:
        clock = self._broker.clock
        if self.follower is not None:
            self.follower.again()
        known = isinstance(wrong, DejaQError)
        self.trouble = str(wrong) if known else f"an error of ours: {wrong!r}"
        if not self._said_us or clock.now_us() - self._said_us > SAY_US:
            self._said_us = clock.now_us()
            log.error("the archive is not followed: %s", self.trouble, exc_info=not known)

    # --- another chain ------------------------------------------------------------------------

    def _begin_anew(self, why: _OtherChainError, *, at_once: bool = False) -> Exception | None:
        """Fill this one with the newest backup, and follow from there; what it has can be read
        meanwhile.

        Args:
            at_once: also if it failed a moment ago.

        Returns:
            What is wrong; None = it is done.
        """
        clock, failure = self._broker.clock, self._anew_failure
        if failure is None or at_once or clock.now_us() - self._anew_us > ANEW_US:
            log.warning("%s", why)
            self.trouble = str(why)
            self._note(is_astray=True)  # a start would do the same
            try:
                self._fill_anew()
            except Exception as wrong:
                failure, self._anew_us = wrong, clock.now_us()
                known = isinstance(wrong, DejaQError)
                if not self._stop.is_set():
                    text = "that failed, and is tried again: %s"
                    log.error(text, wrong, exc_info=not known)
            else:
                failure = None
            self._anew_failure = failure
        if failure is not None:
            told = failure if isinstance(failure, DejaQError) else f"an error of ours: {failure!r}"
            self.trouble = f"{why}; that failed: {told}"
        return failure

    def _fill_anew(self) -> None:
        broker, record, directory = self._broker, self.record, self._directory
        assert record is not None
        before = broker.store
        found = directory.filled_beside(before, record, self._check_going)
        found = replace(found, state=record.state)  # a promotion that was begun goes on
        replace(record, state=StandbyState.FILLING).save(before)  # until it is in place

        def exchanged() -> JournalStore:
            store, self.record = directory.put_in_place(before, found), found
            return store

        try:
            broker.exchange_store(exchanged)
        except BaseException as wrong:
            self._lost = Unavailable(f"start this standby again: it was filled by half: {wrong}")
            raise
        self.follower, self._damage, self._gap = None, None, None
        log.warning("it follows from the backup of %s on", show_instant(found.at_ms))

    def _check_going(self) -> None:
        if self._stop.is_set():
            raise Unavailable("the broker is stopping", 1_000)

    def _bucket(self) -> Bucket:
        return open_bucket(self._url, patience_seconds=PATIENCE_SECONDS)

    def _follow(self) -> bool:
        """Apply what there is; True if there may be more at once."""
        if self._lost is not None:
            raise self._lost
        clock = self._broker.clock
        began_us = clock.now_us()
        follower = self._connected()
        try:
            has_more = follower.step(self._stop)
            if not has_more:
                self._look_around(follower)
        except FollowingEndedError as ended:
            self._ended(ended.standby)
            return False
        except JournalDamaged as damage:
            self._check_chain(is_read_again=True)  # what newer backups cover is given up
            self._check_damage(follower, damage)
            raise
        if not has_more:
            self._caught_up_us = began_us
        elif clock.now_us() - self._noted_us > NOTE_US:
            self._note()
        return has_more

    def _look_around(self, follower: Follower) -> None:
        """Now and then, when nothing comes: look for other strands, and whether the archive goes on
        elsewhere."""
        now_us = self._broker.clock.now_us()
        pause_us = min(STRAND_LOOK_US, CHAIN_LOOK_US) if follower.waits else CHAIN_LOOK_US
        if now_us - self._looked_for_us > pause_us:
            self._looked_for_us = now_us
            before, self._gap = self._gap, follower.gap
            if self._gap is not None and self._gap == before:
                raise JournalDamaged(self._gap.told())
            follower.look()
        if now_us - self._looked_us > CHAIN_LOOK_US:
            self._looked_us = now_us
            self._check_chain()

    def _check_damage(self, follower: Follower, damage: JournalDamaged) -> None:
        """Raise _OtherChainError if it is there again when all was read again, and a newer backup
        has what is missing or damaged."""
        before, self._damage = self._damage, (str(damage), follower.at_ms)
        if before == self._damage and self._newest().cut_ms > follower.at_ms:
            raise _OtherChainError(f"{damage}; a newer backup goes on behind that: {ANEW}")

    def _ended(self, standby: str) -> None:
        record = self.record
        assert record is not None
        if standby == record.id:
            with self._guard:
                self._wish = self._wish or Future()  # a promotion that was killed, of before
            return
        fence = read_fence(self._bucket(), record.store)
        told = fence.told() if fence is not None else f"standby {standby} was promoted"
        self._lost = NotActive(f"nothing more comes: {told}; follow its archive")
        raise self._lost

    def _connected(self) -> Follower:
        if self.follower is None:
            manifest = self._newest()
            record = self.record
            assert record is not None
            follower = Follower(
                self._broker,
                self._bucket(),
                replace(record, data_keys=manifest.data_keys | dict(record.data_keys)),
                lambda wrapped: self._keys(manifest, wrapped),
                in_strands=manifest.in_strands,
            )
            follower.look()
            self.follower = follower
        return self.follower

    def _keys(self, manifest: Manifest, wrapped: Mapping[str, str]) -> DataKeys | None:
        return keys_of(manifest, self._directory.masters, dict(wrapped))

    def _newest(self) -> Manifest:
        """The newest backup of who is followed. Raises _OtherChainError, Unavailable."""
        record = self.record
        assert record is not None
        manifest = Archive.open(self._url).newest(record.store)
        if manifest is None:
            raise Refused("the archive has no backup of the active broker any more")
        if manifest.chain != record.chain:
            raise _OtherChainError(f"the archive begins anew with another backup: {ANEW}")
        return manifest

    def _check_chain(self, *, is_read_again: bool = False) -> None:
        """Raise _OtherChainError if the archive goes on where this one cannot follow.

        Args:
            is_read_again: what was read and is not applied is needed once more.
        """
        self._newest()
        strands = () if self.follower is None else self.follower.strands.values()
        if any(
            one.chain.numbers().start > (one.number if is_read_again else one.read) + 1
            for one in strands
        ):
            raise _OtherChainError(
                f"pieces of the archive were given up before they were applied here: {ANEW}"
            )

    def _note(self, *, is_astray: bool = False) -> None:
        """Note how far it is.

        Args:
            is_astray: it cannot go on from there.
        """
        record, follower = self.record, self.follower
        self._noted_us = self._broker.clock.now_us()
        if record is None or follower is None or record.state is not StandbyState.FOLLOWING:
            return
        try:
            self._save(record.state, is_astray=is_astray)
        except DejaQError as failure:
            log.warning("how far the standby is was not noted: %s", failure)

    def _save(self, state: StandbyState, *, is_astray: bool = False) -> None:
        record, follower = self.record, self.follower
        assert record is not None
        if follower is not None:
            is_astray |= record.is_astray and record.at_ms == follower.at_ms
            record = replace(
                record,
                is_astray=is_astray,
                strands={n: (one.number, one.previous) for n, one in follower.strands.items()},
                logs=follower.logs,
                at_ms=follower.at_ms,
                data_keys=follower.data_keys,
            )
        self.record = replace(record, state=state)
        self.record.save(self._broker.store)

    # --- promotion ----------------------------------------------------------------------------

    def _promote(self, wish: Future[dict[str, Any]]) -> bool:
        """Do it, and answer who wished it; False if it could not be done. It may take another
        turn, if the standby had to be filled anew first."""
        began_us = self._broker.clock.now_us()
        try:
            self._take_place()
        except Exception as caught:  # noqa: BLE001 - who wished it is told
            wrong: Exception = caught
            if isinstance(caught, _OtherChainError):
                failure = self._begin_anew(caught, at_once=True)
                if failure is None:
                    return True  # the wish stands, and is met from what there is now
                wrong = failure
            with self._guard:
                self._wish = None
            self._fail(wrong)
            error = wrong if isinstance(wrong, DejaQError) else None
            wish.set_exception(error or InternalError(f"promotion: {wrong!r}"))
            return False
        follower, took_ms = self.follower, (self._broker.clock.now_us() - began_us) // 1_000
        assert follower is not None
        with self._guard:
            self._wish = None
        log.info("promoted in %d ms, as of %s", took_ms, show_instant(follower.at_ms))
        wish.set_result({"state": "active", "as_of_ms": follower.at_ms, "took_ms": took_ms})
        return True

    def _take_place(self) -> None:
        record = self.record
        assert record is not None
        # Before the fence, which nobody takes back: where pieces were given up, since backups
        # have what they had, a strand seems to end.
        follower, bucket = self._connected(), self._bucket()
        self._check_chain(is_read_again=True)
        try:
            self._catch_up(follower)
            self._check_chain()
        except JournalDamaged as damage:
            self._check_chain(is_read_again=True)
            self._check_damage(follower, damage)
            raise
        if record.is_astray and record.at_ms == follower.at_ms:
            raise _OtherChainError(f"a newer backup has more than this standby: {ANEW}")
        self._save(StandbyState.PROMOTING)
        mine = Fence(record.store, record.id, self._broker.clock.utc_ms(), self._where())
        fence = put_fence(bucket, mine)
        if fence.standby != record.id:
            self._save(StandbyState.FOLLOWING)
            self._lost = NotActive(f"another one is active: {fence.told()}; follow its archive")
            raise self._lost
        self._seal(follower, record)
        count = sum(len(one.held) for one in follower.strands.values())
        if count:
            log.warning(
                "%d pieces are left out, or a part of each: no cut has what they have", count
            )
        self._save(StandbyState.ACTIVE)
        self._broker.serve_as_active()

    def _catch_up(self, follower: Follower) -> None:
        """Apply what there is; of archivers that store on, most of it: the rest is read when they
        are ended. Raises Unavailable: the broker stops."""
        follower.again()
        follower.look()
        near, clock = 0, self._broker.clock
        until_us = clock.now_us() + CATCH_UP_US
        while near < NEAR_STEPS and clock.now_us() < until_us and self._stepped(follower):
            near = near + 1 if follower.read_count <= 2 * len(follower.strands) else 0
            if self._stop.is_set():
                raise Unavailable("the broker is stopping", 1_000)

    def _stepped(self, follower: Follower) -> bool:
        """Do a step; False: there was nothing, or strands were ended: by whom the fence says."""
        try:
            return follower.step(self._stop)
        except FollowingEndedError:
            return False

    def _seal(self, follower: Follower, record: StandbyRecord) -> None:
        """End all strands, so that the other brokers' next pieces meet this one; what they stored
        before is applied. A broker that begins a strand later looks for the fence."""
        known = -1
        while known < len(follower.strands):
            known = len(follower.strands)
            follower.seal(record.id, record.store)
            follower.look()
        while self._stepped(follower):
            continue
