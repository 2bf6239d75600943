"""Watching copies: a server whose copy of a stream has gaps is named, and leads no stream any more.

Room: journal. A replicated system may lose records of one copy to a damaged disk, choose that copy
as leader, and say that they never were: so each server is asked what it has.
Holds: nothing is repaired here. A server that is sick stays so until all its copies are whole.
See: connections/nats_monitor.py; docs/guides/choosing-a-journal.md.

A copy is sick if it has fewer records than lie between its first and its last, or fewer than
another copy with the same last, or if it is not there at all. What could be a copy that is behind
must be seen twice.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dejaqueue.clock import Clock, Wake
from dejaqueue.connections.nats import ApiRefusal, NatsConnection
from dejaqueue.connections.nats_monitor import Copy, Monitor, ServerReport
from dejaqueue.errors import Unavailable

log = logging.getLogger("dejaqueue.journal")

PERIOD_MS = 30_000
AGAIN_MS = 1_000
"""So long after a finding that could be a copy that is behind it is looked at again."""


@dataclass(frozen=True, slots=True)
class SickCopy:
    """A server's copy of a stream that is not whole; stream "" = the whole server."""

    server: str
    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look at a copy said; an unsure one must be seen twice."""

    copy: SickCopy
    is_sure: bool


class CopyWatch:
    """Looks at all copies at once and every half minute."""

    def __init__(
        self,
        connection: NatsConnection,
        monitor: Monitor,
        prefix: str,
        records_prefix: str,
        clock: Clock,
        on_change: Callable[[list[SickCopy]], None] | None = None,
    ) -> None:
        """See `check` and `start`.

        Args:
            prefix: of the streams that are looked at. records_prefix: of those without gaps.
            on_change: called, on the watch's thread, with all that is sick after each change.
        """
        self._connection, self._monitor, self._clock = connection, monitor, clock
        self._prefix, self._records = f"{prefix}-", records_prefix
        self._on_change = on_change
        self._wake, self._stop = Wake(), threading.Event()
        self._unsure: set[SickCopy] = set()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self.sick: list[SickCopy] = []

    def start(self) -> None:
        """Look every half minute, on a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="nats-copies", daemon=True)
        self._thread.start()

    def look_now(self) -> None:
        """Look soon: somebody met a record that was missing or altered."""
        self._wake.ring()

    def _run(self) -> None:
        wait_ms = PERIOD_MS
        while not self._stop.is_set():
            self._clock.wait_until(self._clock.now_us() + wait_ms * 1000, self._wake)
            if self._stop.is_set():
                return
            try:
                self.check()
            except Exception:
                log.exception("cannot look at the copies of the streams")
            wait_ms = AGAIN_MS if self._unsure else PERIOD_MS

    def check(self) -> list[SickCopy]:
        """Look now; the copies that are sick. Nobody answered: what was sick stays so."""
        reports = self._monitor.reports()
        if not reports:
            return self.sick
        with self._guard:
            findings = list(find_sick(reports, self._prefix, self._records))
            unsure = {one.copy for one in findings if not one.is_sure}
            sick = [one.copy for one in findings if one.is_sure or one.copy in self._unsure]
            # A server that does not answer was not healed by that.
            told = {report.server for report in reports}
            sick += [one for one in self.sick if one.server not in told]
            self._unsure = unsure
            changed = set(sick) != set(self.sick)
            self.sick = sick
        if changed:
            self._say(sick)
        if sick:
            self._lead_away(reports, {one.server for one in sick})
        return sick

    def _say(self, sick: list[SickCopy]) -> None:
        for one in sick:
            log.error(
                "server %s is sick: %s%s", one.server, one.stream and f"{one.stream}: ", one.text
            )
        if not sick:
            log.info("all copies of all streams are whole")
        if self._on_change is not None:
            self._on_change(sick)

    def _lead_away(self, reports: list[ServerReport], sick: set[str]) -> None:
        """Have no stream led by a sick server, where a whole one can."""
        for report in reports:
            for copy in report.copies:
                ours = copy.stream.startswith(self._prefix)
                if not ours or copy.leader != report.server or report.server not in sick:
                    continue
                whole = [name for name in copy.followers if name not in sick]
                if whole:
                    self._step_down(copy.stream, whole[0])

    def _step_down(self, stream: str, successor: str) -> None:
        asked = {"placement": {"preferred": successor}}
        try:
            self._connection.api(f"STREAM.LEADER.STEPDOWN.{stream}", asked)
        except (ApiRefusal, Unavailable) as error:
            log.warning("%s: its leader is sick and does not step down: %s", stream, error)

    def close(self) -> None:
        """Stop looking; twice is fine."""
        self._stop.set()
        self._wake.ring()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(30)
        self._monitor.close()


def find_sick(reports: list[ServerReport], prefix: str, records_prefix: str) -> Iterator[Finding]:
    """What these reports say is sick."""
    copies: dict[str, list[Copy]] = defaultdict(list)
    for report in reports:
        if report.is_off:
            yield Finding(SickCopy(report.server, "", "JetStream has stopped there"), False)
        for copy in report.copies:
            if copy.stream.startswith(prefix):
                copies[copy.stream].append(copy)
    told = {report.server for report in reports if not report.is_off}
    for stream, all_copies in sorted(copies.items()):
        if stream.startswith(records_prefix):
            yield from _gaps(all_copies)
        yield from _fewer(all_copies)
        yield from _missing(stream, all_copies, told)


def _gaps(copies: list[Copy]) -> Iterator[Finding]:
    for copy in copies:
        between = copy.last - copy.first + 1 if copy.messages else 0
        missing = max(copy.gone, between - copy.messages)
        if missing:
            text = f"{missing} of its records are missing"
            yield Finding(SickCopy(copy.server, copy.stream, text), True)


def _fewer(copies: list[Copy]) -> Iterator[Finding]:
    """Fewer records than another copy with the same last: lost at the beginning, or in between."""
    for copy in copies:
        most = max(one.messages for one in copies if one.last == copy.last)
        if copy.messages < most:
            text = f"fewer records than the copy of another server, which ends at {copy.last} too"
            yield Finding(SickCopy(copy.server, copy.stream, text), False)


def _missing(stream: str, copies: list[Copy], told: set[str]) -> Iterator[Finding]:
    have = {copy.server for copy in copies}
    expected = {name for copy in copies for name in copy.followers}
    for server in sorted((expected - have) & told):
        yield Finding(SickCopy(server, stream, "it has no copy"), False)
