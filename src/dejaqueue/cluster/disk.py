"""The disk of the server beside a broker: how much is free, and a server that it stopped.

JetStream switches itself off when a write finds no room, and goes on without a copy whose write
failed otherwise (a disk that became read-only, say). Neither ends when the disk takes writes again:
only a restart does. That needs no other node, so nothing is asked of the others first.

Room: cluster. `Disk` measures, `Restarter` starts the server again; who refuses producers is
node.py.
Holds: a server is started again only after a write to its disk came through, with room for more; a
disk is short from where less than the reserve is free until a quarter more than that is.
See: jetstream.py, node.py; docs/guides/cluster.md.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from dejaqueue.broker.topic.cluster_port import Disks
from dejaqueue.clock import Clock, Wake
from dejaqueue.cluster.members import Member
from dejaqueue.errors import Unavailable

log = logging.getLogger("dejaqueue.cluster")

LOOK_MS = 1_000
ASK_MS = 5_000
PROBE_BYTES = 1 << 20
"""What has to be written before a server is started again."""
ROOM_BYTES = 16 << 20
"""What has to be free then. A server that meets the end of its disk may empty the log by which its
copy votes, and the copy counts again only once the nodes that have all of it are there: so it must
not meet the end again merely because it was started too early."""
PAUSE_MS, PAUSE_MS_MAX = 10_000, 300_000
"""After the first restart, and the longest after those that did not help."""
TRIES_MAX = 3
"""A server that is off after so many restarts, with room on its disk, is not helped by another."""
WRITE_FAILED = ("ritical write error", "resource limits exceeded", "no space left on device")
"""In lines of a server that goes on without some copy, or is about to switch itself off."""


class Disk:
    """Where a server keeps its streams.

    Args:
        directory: on this disk; it need not be there yet.
        reserve_bytes: producers wait while less is free; 0 = they never do.

    Attributes:
        free_bytes: as of the last look; None = not known.
        is_short: producers should wait.
    """

    def __init__(self, directory: Path, reserve_bytes: int) -> None:
        self._directory, self.reserve_bytes = directory, reserve_bytes
        self.free_bytes: int | None = None
        self.is_short = False

    def look(self) -> None:
        """Measure. Cost: one call of the system."""
        free_bytes = self._measure()
        if free_bytes is None:
            return
        self.free_bytes = free_bytes
        enough = self.reserve_bytes
        if self.is_short:
            enough += enough // 4  # or producers would come and go with every record
        was_short, self.is_short = self.is_short, self.free_bytes < enough
        if self.is_short and not was_short:
            log.error(
                "%d MiB are free on the disk of %s, less than cluster.reserve_bytes: producers of "
                "the cluster wait, consumers go on; make room there",
                self.free_bytes >> 20,
                self._directory,
            )
        elif was_short and not self.is_short:
            log.info("there is room on the disk of %s again", self._directory)

    def _measure(self) -> int | None:
        try:
            facts = os.statvfs(self._directory)
        except OSError as error:
            log.debug("%s: %s", self._directory, error)
            return None
        return facts.f_bavail * facts.f_frsize

    def takes_writes(self) -> bool:
        """Write something, durably, and remove it again; False if that failed, or if there is too
        little room for a server to run."""
        free_bytes = self._measure()
        if free_bytes is not None and free_bytes < ROOM_BYTES:
            return False
        probe = self._directory / "probe"
        try:
            with probe.open("wb") as file:
                file.write(bytes(PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            log.debug("%s: %s", probe, error)
            return False
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
        return True


def disks_of(node: str, members: Iterable[Member], own: Disk | None) -> Disks:
    """What is known of all disks: what members say of theirs, and what is measured here.

    Args:
        node: this broker.
        own: of its server; None = there is none.
    """
    short = {member.node for member in members if member.short and member.node != node}
    if own is not None and own.is_short:
        short.add(node)
    return Disks(None if own is None else own.free_bytes, tuple(sorted(short)))


class Restarter:
    """Looks at the disk and at the server, and starts the server again once that helps.

    Args:
        is_off: asks the server itself whether it has switched JetStream off; raises Unavailable.
        restart: ends the server and starts it.

    Attributes:
        count: how often it was started again.
    """

    def __init__(
        self, disk: Disk, is_off: Callable[[], bool], restart: Callable[[], None], clock: Clock
    ) -> None:
        self._disk, self._is_off, self._restart = disk, is_off, restart
        self._clock, self._wake = clock, Wake()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._failed = False
        """A write failed since the server was started."""
        self._was_off = False
        self._asked_us = self._next_us = 0
        self._tries = 0
        """Restarts since it last ran well, or since there was no room."""
        self._was_short = False
        self.count = 0

    def start(self) -> None:
        """Look every second, on a thread of its own."""
        self._stopping = False
        self._wake.clear()
        self._disk.look()
        self._thread = threading.Thread(target=self._run, name="nats-disk", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.look()
            except Exception:  # our bug: the next look may be well
                log.exception("cannot look after the disk of the server")
            self._clock.wait_until(self._clock.now_us() + LOOK_MS * 1_000, self._wake)

    def read(self, line: str) -> None:
        """Take notice of a line that the server wrote."""
        if any(mark in line for mark in WRITE_FAILED):
            self._failed = True

    @property
    def is_trying(self) -> bool:
        """The server is off, and starting it again is what may help."""
        return self._was_off and (self._disk.is_short or self._tries < TRIES_MAX)

    def look(self) -> None:
        """Look once."""
        self._disk.look()
        now_us = self._clock.now_us()
        if now_us >= self._asked_us + ASK_MS * 1_000:
            self._asked_us = now_us
            with suppress(Unavailable):  # it is starting, or too busy to say
                self._was_off = self._is_off()
        if self._was_short and not self._disk.is_short:
            self._was_short, self._tries, self._next_us = False, 0, now_us
        if now_us < self._next_us:
            return
        if not (self._failed or self._was_off):
            self._tries = 0
        elif self._disk.takes_writes():
            self._start_again()

    def _start_again(self) -> None:
        log.warning("the disk takes writes: the server that could not write is started again")
        self._restart()
        self._failed = self._was_off = False  # the server of before has said all it had to say
        self.count += 1
        self._was_short = self._disk.is_short
        self._asked_us = self._clock.now_us()
        self._next_us = self._asked_us + min(PAUSE_MS << self._tries, PAUSE_MS_MAX) * 1_000
        self._tries += 1

    def stop(self) -> None:
        """Look no more; twice is fine."""
        self._stopping = True
        self._wake.ring()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            self._thread = None
