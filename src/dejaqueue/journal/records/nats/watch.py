"""Watching copies: a server whose copy of a stream has gaps is named, and leads no stream any more.

Room: journal. A replicated system may lose records of one copy to a damaged disk, choose that copy
as leader, and say that they never were: so each server is asked what it has.
Holds: nothing is repaired here. A server that is sick stays so until all its copies are whole.
See: connections/nats/monitor.py; docs/guides/choosing-a-journal.md.

A copy is sick if it has fewer records than another copy with the same last, or if it is not there
at all; a server that does not answer is named too, since damage can keep one from starting. What
could be a copy that is only behind must stay so for a while. What a server says of itself does not
show a record that it cannot read: so its copies are read through when it was started, and where
somebody could not read a record, and are compared with what the other servers have.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from dejaqueue.clock import Clock, Wake
from dejaqueue.connections.nats.answers import ApiRefusal, Reply
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.monitor import Copy, Monitor, ServerReport
from dejaqueue.errors import Unavailable
from dejaqueue.journal.records.nats.copies import find_damage, read_copy

log = logging.getLogger("dejaqueue.journal")

PERIOD_MS = 30_000
SURE_MS = 5_000
"""After this long, a copy that is behind or a server that is starting counts as sick."""
SOON_MS = 1_000
SUSPECTS_MAX = 100
READ_MS = 1_000
READ_AGAIN_MS = 3_000
"""For so long copies of a server that was started are read through, and again after so long: each
is a reader that the servers agree on, and they have clients who wait."""


@dataclass(frozen=True, slots=True)
class SickCopy:
    """A server's copy of a stream that is not whole; stream "" = the whole server.

    Attributes:
        number: of a record that is missing or altered, 0 = not known.
        count: how many are missing, as far as it is known.
    """

    server: str
    stream: str
    text: str
    number: int = field(default=0, compare=False)
    count: int = field(default=0, compare=False)

    def __str__(self) -> str:
        place = f"{self.stream}: " if self.stream else ""
        return f"server {self.server} is sick: {place}{self.text}"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look at a copy said; one that is not sure must stay for a while."""

    copy: SickCopy
    is_sure: bool


class CopyWatch:
    """Looks at all copies at once and every half minute.

    Attributes:
        sick: as of the last look.
        seen: what the servers said then.
    """

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
            prefix: of the streams that are looked at, those of facts too.
            records_prefix: of those whose copies are compared when they are read.
            on_change: called, on the watch's thread, with all that is sick after each change.
        """
        self._connection, self._monitor, self._clock = connection, monitor, clock
        self._prefixes, self._records = (f"{prefix}-", f"KV_{prefix}_"), records_prefix
        self._on_change = [on_change] if on_change else []
        self._wake, self._stop = Wake(), threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        # When a finding that is not sure was first made; records somebody could not read.
        self._unsure_ms: dict[SickCopy, int] = {}
        self._suspects: set[tuple[str, int]] = set()
        # Records that a server was seen to lack, and in which run of a server its copies were read.
        self._accused: dict[tuple[str, str], int] = {}
        self._read_in: dict[str, str] = {}
        # Copies that are to be read through, by (server, stream): what could not be read is last.
        self._unread: dict[tuple[str, str], None] = {}
        self._own = ""
        """The server beside this broker, whose copies no other broker reads; "" = all read all."""
        self.sick: list[SickCopy] = []
        self.seen: list[ServerReport] = []

    def is_ours(self, stream: str) -> bool:
        """True for a stream that is looked at."""
        return stream.startswith(self._prefixes)

    def start(self) -> None:
        """Look every half minute, on a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="nats-copies", daemon=True)
        self._thread.start()

    def on_change(self, call: Callable[[list[SickCopy]], None]) -> None:
        """Call, too, after each change; now as well if anything is sick."""
        self._on_change.append(call)
        if self.sick:
            call(list(self.sick))

    def distrust(self, server: str) -> None:
        """Read all copies of the server beside this broker through from the next look on: it was
        started, too. Those of other servers are read by the brokers beside them."""
        self._own = server
        self._read_in[server] = ""
        self._wake.ring()

    def suspect(self, stream: str, number: int) -> None:
        """Look soon whether a server lacks a record: somebody could not read it."""
        if len(self._suspects) < SUSPECTS_MAX:
            self._suspects.add((stream, number))
            self._wake.ring()

    def _run(self) -> None:
        while not self._stop.is_set():
            wait_ms = READ_AGAIN_MS if self._unread else PERIOD_MS
            wait_ms = SOON_MS if self._unsure_ms else wait_ms
            rung = self._clock.wait_until(self._clock.now_us() + wait_ms * 1000, self._wake)
            if rung and not self._stop.is_set():
                # A copy that is only behind gets its time to come up.
                self._clock.wait_until(self._clock.now_us() + SOON_MS * 1000, self._wake)
            if self._stop.is_set():
                return
            try:
                self.check()
            except Exception:
                if not self._stop.is_set():
                    log.exception("cannot look at the copies of the streams")

    def check(self) -> list[SickCopy]:
        """Look now; the copies that are sick. Nobody answered: what was sick stays so."""
        with self._guard:
            reports = self.seen = self._monitor.reports()
            if not reports or self._stop.is_set():
                return self.sick
            self._drop_accusations(reports)
            self._read_suspects(reports)
            self._read_new_runs(reports)
            findings = [*find_sick(reports, self.is_ours), *self._accusations()]
            sick = self._sure(findings)
            # A server that does not answer was not healed by that.
            told = {report.server for report in reports}
            sick += [one for one in self.sick if one.stream and one.server not in told]
            changed = set(sick) != set(self.sick)
            self.sick = sick
        if changed:
            self._say(sick)
        if sick:
            self._lead_away(reports, {one.server for one in sick})
        return sick

    def _sure(self, findings: list[Finding]) -> list[SickCopy]:
        now_ms = self._clock.now_ms()
        unsure = {one.copy for one in findings if not one.is_sure}
        self._unsure_ms = {copy: self._unsure_ms.get(copy, now_ms) for copy in unsure}
        sick = {one.copy: one.copy for one in findings if one.is_sure}
        for copy, since_ms in self._unsure_ms.items():
            if now_ms - since_ms >= SURE_MS:
                sick.setdefault(copy, copy)
        return list(sick.values())

    # --- reading copies ------------------------------------------------------------------------

    def _read_suspects(self, reports: list[ServerReport]) -> None:
        suspects, self._suspects = self._suspects, set()
        suspects |= {(stream, number) for (_, stream), number in self._accused.items()}
        for stream, number in sorted(suspects):
            for copy in _copies_of(reports, stream):
                if copy.first <= number <= copy.last:
                    self._read(copy, number, number + 1)
                elif self._accused.get((copy.server, stream)) == number < copy.first:
                    del self._accused[copy.server, stream]  # nobody needs it any more

    def _drop_accusations(self, reports: list[ServerReport]) -> None:
        """A copy that was given up is sick no more; one that should be there is missing."""
        told = {report.server for report in reports if not report.is_off}
        there = {(copy.server, copy.stream) for report in reports for copy in report.copies}
        for place in [one for one in self._accused if one[0] in told and one not in there]:
            del self._accused[place]

    def _read_new_runs(self, reports: list[ServerReport]) -> None:
        """Read all copies of a server that was started since: who starts may have lost a disk.

        Those that cannot be read yet, or not in READ_MS, are read at a later look.
        """
        until_ms = self._clock.now_ms() + READ_MS
        placed = _placed(reports, self.is_ours)
        for report in reports:
            if report.is_off:
                continue  # it is only starting, it may be
            before = self._read_in.get(report.server)
            self._read_in[report.server] = report.run
            if before not in {None, report.run} and self._own in {"", report.server}:
                own = sorted(place for place in placed if place[0] == report.server)
                self._unread |= dict.fromkeys(own)
        there = {(copy.server, copy.stream): copy for report in reports for copy in report.copies}
        for place in [one for one in self._unread if one not in placed]:
            del self._unread[place]
        for place in [one for one in self._unread if one in there]:
            copy = there[place]
            if self._clock.now_ms() >= until_ms:
                return
            del self._unread[place]
            if copy.messages and not self._read(copy, copy.first, copy.last + 1):
                self._unread[place] = None

    def _read(self, copy: Copy, first: int, end: int) -> bool:
        """Read a range of a copy, and accuse its server if it is not whole, or no more if it is.

        Returns:
            False if it could not be read now.
        """
        others = [one.server for one in _copies_of(self.seen, copy.stream) if one is not copy]
        if not copy.stream.startswith(self._records):
            others = []  # those drop what was replaced all the time
        place = (copy.server, copy.stream)
        try:
            number = find_damage(
                self._connection,
                copy.stream,
                copy.server,
                first,
                end,
                others,
                check=self._check_running,
            )
        except Unavailable as error:
            log.debug("cannot read %s on %s: %s", copy.stream, copy.server, error)
            return False
        if number is not None:
            self._accused[place] = number
        elif first <= self._accused.get(place, 0) < end:
            del self._accused[place]
        return True

    def _check_running(self) -> None:
        if self._stop.is_set():
            raise Unavailable("nobody wants to know any more")

    def _accusations(self) -> Iterator[Finding]:
        for (server, stream), number in sorted(self._accused.items()):
            # Not sure: a record that was given back between two looks seems to be missing.
            text = "a record is missing or altered"
            yield Finding(SickCopy(server, stream, text, number, 1), False)

    def copies(self, stream: str, sequence: int, subject: str) -> Iterator[Reply]:
        """The record of a subject at a sequence, or the next one, as each server has it. Servers
        that do not answer are left out."""
        for copy in _copies_of(self._monitor.reports(), stream):
            records = read_copy(self._connection, stream, copy.server, sequence, subject)
            with suppress(Unavailable, StopIteration):
                yield next(records)[1]

    # --- what follows --------------------------------------------------------------------------

    def _say(self, sick: list[SickCopy]) -> None:
        for one in sick:
            log.error("%s", one)
        if not sick:
            log.info("all copies of all streams are whole")
        for call in list(self._on_change):
            call(list(sick))

    def _lead_away(self, reports: list[ServerReport], sick: set[str]) -> None:
        """Have no stream led by a sick server, where a whole one can."""
        for report in reports:
            for copy in report.copies:
                ours = self.is_ours(copy.stream)
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
        """Stop looking; twice is fine. A copy that is being read is not read to its end."""
        self._stop.set()
        self._wake.ring()
        self._monitor.close()  # what it asks just now is answered by nobody
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(30)
            self._monitor.close()  # it may just have been made anew


def _placed(reports: list[ServerReport], is_ours: Callable[[str], bool]) -> set[tuple[str, str]]:
    """(server, stream) of copies that there are, or that should be, as the leaders say."""
    return {
        (server, copy.stream)
        for report in reports
        for copy in report.copies
        if is_ours(copy.stream)
        for server in (copy.server, *copy.followers)
    }


def _copies_of(reports: list[ServerReport], stream: str) -> list[Copy]:
    return [copy for report in reports for copy in report.copies if copy.stream == stream]


def find_sick(reports: list[ServerReport], is_ours: Callable[[str], bool]) -> Iterator[Finding]:
    """What these reports say is sick."""
    copies: dict[str, list[Copy]] = defaultdict(list)
    for report in reports:
        if report.is_off:
            yield Finding(SickCopy(report.server, "", "JetStream has stopped there"), False)
        for copy in report.copies:
            if is_ours(copy.stream):
                copies[copy.stream].append(copy)
    told = {report.server for report in reports if not report.is_off}
    yield from _silent(copies, {report.server for report in reports})
    for stream, all_copies in sorted(copies.items()):
        yield from _fewer(all_copies)
        yield from _missing(stream, all_copies, told)


def _fewer(copies: list[Copy]) -> Iterator[Finding]:
    """Fewer records than another copy with the same last: lost at the beginning, or in between."""
    for copy in copies:
        most = max(one.messages for one in copies if one.last == copy.last)
        if copy.messages < most:
            text = "it has fewer records than another server"
            missing = most - copy.messages
            yield Finding(SickCopy(copy.server, copy.stream, text, 0, missing), False)


def _silent(copies: dict[str, list[Copy]], told: set[str]) -> Iterator[Finding]:
    expected = {name for one in copies.values() for copy in one for name in copy.followers}
    for server in sorted(expected - told):
        yield Finding(SickCopy(server, "", "the server does not answer"), False)


def _missing(stream: str, copies: list[Copy], told: set[str]) -> Iterator[Finding]:
    have = {copy.server for copy in copies}
    expected = {name for copy in copies for name in copy.followers}
    for server in sorted((expected - have) & told):
        yield Finding(SickCopy(server, stream, "it has no copy"), False)
