"""One run of the demo: broker and consumers as processes, the replay here, the verdict at the end.

Room: cli. Puts the other files of this package together.
Holds: whatever happens, no process and no temporary directory is left behind.
"""

from __future__ import annotations

import os
import platform
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from dejaqueue.cli.demo.cluster import ClusterProcesses
from dejaqueue.cli.demo.flights import Flights, load_flights
from dejaqueue.cli.demo.plan import Plan, make_plan
from dejaqueue.cli.demo.processes import BrokerProcess, ConsumerProcess
from dejaqueue.cli.demo.progress import Progress
from dejaqueue.cli.demo.replay import Replay
from dejaqueue.cli.demo.report import Run, write_page
from dejaqueue.cli.demo.verdict import Verdict, judge
from dejaqueue.clock import SystemClock, Wake
from dejaqueue.model import RowStatus
from dejaqueue.version import __version__

if TYPE_CHECKING:
    from dejaqueue import Client

TOPIC = "departures"
COMING = "departures-to-come"
"""With --console, what people look at in the end."""
CONSOLE_MS = 60_000
"""With --console, the broker stays for so long."""
CONSOLE_LENGTH_MS = 3_600_000
CONSUMER_COUNT = 2
SCHEDULE_ROWS_A_SECOND = 100_000
"""How fast scheduling is thought to be; if it is slower, the year is moved."""
LEAD_MS = 500
"""Between the last message scheduled and the first change told."""
GRACE_MS = 15_000
"""How long after the last due time is waited for what has not come."""
QUIET_MS = 500
"""How long is listened for messages that come twice, after all have come once."""
CLUSTER_GRACE_MS = 45_000
"""The same with --cluster: JetStream may take 15 s to choose a leader."""
CLUSTER_NOTICE_MS = 20_000
"""With --cluster, the least notice."""
KILL_LEASE_MS = 3_000
"""With --kill, the lease: what the dead broker had just delivered comes back after it."""
KILL_NOTICE_MS = 6_000
"""With --kill, the least notice: the broker is away for a second or two meanwhile."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for on the command line.

    Attributes:
        data: the broker's directory, kept; None = a temporary one.
        console: leave the broker with its console for a minute, with the year still to come.
    """

    length_ms: int
    day: date | None
    notice_minutes: int
    notice_ms: int
    data: Path | None
    html: Path
    kill: bool
    cluster: bool = False
    console: bool = False

    @property
    def has_faults(self) -> bool:
        """True if brokers are killed or put to sleep."""
        return self.kill or self.cluster


def run_demo(options: Options, progress: Progress) -> Verdict:
    """Replay, compare, write the page; the verdict.

    Raises:
        Unavailable: the flights are not installed, or a process did not start.
        BadRequest: there are no flights on that day.
    """
    flights = load_flights(options.day)
    notice_ms = options.notice_ms
    if options.has_faults:
        notice_ms = max(notice_ms, CLUSTER_NOTICE_MS if options.cluster else KILL_NOTICE_MS)
    plan = make_plan(
        flights, options.length_ms, notice_minutes=options.notice_minutes, notice_ms_min=notice_ms
    )
    # The first changes are told this long before the first flight departs.
    lead_ms = LEAD_MS + max(-int(plan.notices_ms.min()), 0)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dejaq-demo-")))
        data = options.data or directory / "data"
        broker: BrokerProcess | ClusterProcesses
        if options.cluster:
            progress.say("starting three brokers")
            broker = ClusterProcesses(data, directory)
        else:
            broker = BrokerProcess(data, directory / "broker.log")
        stack.enter_context(broker)
        progress.say(f"broker at {broker.url}; {len(flights):,} flights, {plan.speed:,.0f} × time")
        if options.console and isinstance(broker, BrokerProcess):
            progress.say(f"console at {broker.http_url}/console")
        verdict = _replay(options, flights, plan, lead_ms, broker, directory, progress)
        if options.console and isinstance(broker, BrokerProcess):
            _leave_open(broker, flights, progress)
        return verdict


def _leave_open(broker: BrokerProcess, flights: Flights, progress: Progress) -> None:
    """Schedule the flights again, over an hour, and let people look at them for a minute."""
    from dejaqueue import Client

    plan, clock = (
        make_plan(flights, CONSOLE_LENGTH_MS, notice_minutes=0, notice_ms_min=0),
        SystemClock(),
    )
    with Client(broker.url) as client:
        if any(found.name == COMING for found in client.topics()):
            client.delete_topic(COMING)
        client.create_topic(COMING, partitions=4)
        replay = Replay(client, COMING, flights, plan, clock)
        replay.schedule(LEAD_MS + len(flights) * 1_000 // SCHEDULE_ROWS_A_SECOND, LEAD_MS, _nothing)
        place = f"{broker.http_url}/console/future?span=hour&topic={COMING}"
        progress.say(f"{len(flights):,} flights depart again within an hour: {place}")
        progress.say(f"the broker stops in {CONSOLE_MS // 1_000} s; Ctrl-C ends it sooner")
        with suppress(KeyboardInterrupt):
            replay.wait_until_ms(clock.now_ms() + CONSOLE_MS)


def _nothing() -> None:
    return


def _replay(
    options: Options,
    flights: Flights,
    plan: Plan,
    lead_ms: int,
    broker: BrokerProcess | ClusterProcesses,
    directory: Path,
    progress: Progress,
) -> Verdict:
    from dejaqueue import Client

    clock = SystemClock()
    with Client(broker.url) as client, _consumers(broker, directory, options) as consumers:
        _make_topic(client, options)
        replay = Replay(client, TOPIC, flights, plan, clock)

        def show_scheduling() -> None:
            progress.show({"scheduled": (replay.scheduled_count, len(flights))})

        margin_ms = LEAD_MS + len(flights) * 1_000 // SCHEDULE_ROWS_A_SECOND
        replay.schedule(margin_ms, lead_ms, show_scheduling)
        for consumer in consumers:
            consumer.begin()
        faults = Faults(_faults(broker, options), replay.start_ms, progress)
        faults.start()

        def show_running() -> None:
            passed_ms = max(clock.now_ms() - replay.start_ms, 0)
            progress.show(
                {
                    "clock (ms)": (min(passed_ms, plan.length_ms), plan.length_ms),
                    "moves and cancels": (replay.told_count, replay.change_count),
                    "delivered": (sum(c.count for c in consumers), _expected(replay, plan)),
                }
            )

        replay.run(show_running)
        faults.join()
        grace_ms = CLUSTER_GRACE_MS if options.cluster else GRACE_MS
        while not _is_over(replay, plan, consumers, clock, grace_ms):
            show_running()
            replay.wait_until_ms(clock.now_ms() + 100)
        show_running()
        replay.wait_until_ms(
            clock.now_ms() + QUIET_MS + (KILL_LEASE_MS if options.has_faults else 0)
        )
        for consumer in consumers:
            consumer.stop()
        received = pa.concat_tables([_read(consumer.out) for consumer in consumers])
    verdict, arrivals = judge(
        flights, plan, replay.start_ms, replay.statuses, received, killed=options.has_faults
    )
    run = Run(
        period=options.day.isoformat() if options.day else "2013",
        plan=plan,
        verdict=verdict,
        arrivals=arrivals,
        start_ms=replay.start_ms,
        killed_ms=faults.first_ms,
        facts=_facts(options),
    )
    options.html.parent.mkdir(parents=True, exist_ok=True)
    options.html.write_text(write_page(run), encoding="utf-8")
    return verdict


def _make_topic(client: Client, options: Options) -> None:
    """A fresh topic; that of an earlier run in a kept directory is deleted."""
    if any(found.name == TOPIC for found in client.topics()):
        client.delete_topic(TOPIC)
    client.create_topic(TOPIC)
    if options.has_faults:
        client.alter_topic(TOPIC, lease_ms=KILL_LEASE_MS)


@contextmanager
def _consumers(
    broker: BrokerProcess | ClusterProcesses, directory: Path, options: Options
) -> Iterator[list[ConsumerProcess]]:
    """Consumers that are ready and wait for `begin`; none of them is left at the end."""
    started: list[ConsumerProcess] = []
    try:
        for place in range(CONSUMER_COUNT):
            out, log = directory / f"consumer-{place}.arrow", directory / f"consumer-{place}.log"
            consumer = ConsumerProcess(
                broker.url, TOPIC, out, confirm=options.has_faults, log_path=log
            )
            started.append(consumer)
        for consumer in started:
            consumer.wait_ready()
        yield started
    finally:
        for consumer in started:
            consumer.kill()


Fault = tuple[int, Callable[[], str]]
"""Milliseconds after the first departure, and what is done then, which says what it was."""


def _faults(broker: BrokerProcess | ClusterProcesses, options: Options) -> list[Fault]:
    if isinstance(broker, ClusterProcesses):
        return [
            (options.length_ms // 3, lambda: broker.kill_owner(TOPIC)),
            (options.length_ms * 2 // 3, lambda: broker.put_owner_to_sleep(TOPIC)),
        ]

    def kill() -> str:
        broker.kill()
        broker.start()
        return f"the broker was killed with SIGKILL and is back at {broker.url}"

    return [(options.length_ms // 2, kill)] if options.kill else []


class Faults(threading.Thread):
    """Does what goes wrong, at its instants, on a thread of its own.

    Attributes:
        first_ms: when the first of them happened, after the first departure; -1 = there is none.
    """

    def __init__(self, faults: list[Fault], start_ms: int, progress: Progress) -> None:
        super().__init__(name="faults", daemon=True)
        self._faults, self._start_ms, self._progress = faults, start_ms, progress
        self.first_ms = faults[0][0] if faults else -1

    def run(self) -> None:
        """Wait, do, say."""
        for after_ms, do in self._faults:
            SystemClock().wait_until((self._start_ms + after_ms) * 1_000, Wake())
            self._progress.say(do())


def _expected(replay: Replay, plan: Plan) -> int:
    """Messages that should arrive, as far as is known by now."""
    cancelled = (plan.changes == 2) & (replay.statuses == RowStatus.OK)
    return len(plan) - int(cancelled.sum())


def _is_over(
    replay: Replay,
    plan: Plan,
    consumers: list[ConsumerProcess],
    clock: SystemClock,
    grace_ms: int,
) -> bool:
    """True when the timeline has passed and everything has come, or has had time enough to."""
    passed_ms = clock.now_ms() - replay.start_ms
    if passed_ms < plan.length_ms:
        return False
    arrived = sum(consumer.count for consumer in consumers)
    return arrived >= _expected(replay, plan) or passed_ms > plan.length_ms + grace_ms


def _read(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
        return reader.read_all()


def _facts(options: Options) -> list[tuple[str, str]]:
    facts = [
        ("DejaQ", __version__),
        ("Python", platform.python_version()),
        ("pyarrow", pa.__version__),
        ("machine", f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"),
        (
            "processes",
            f"{'three brokers' if options.cluster else 'one broker'}, {CONSUMER_COUNT} consumers, "
            "one that schedules and moves",
        ),
        (
            "journal",
            "JetStream, three copies, each synced to disk before the reply"
            if options.cluster
            else "segment files, every batch synced to disk before its reply",
        ),
    ]
    if options.cluster:
        facts.append(("killed", "the broker that served the topic, after a third"))
        facts.append(("asleep", "the one that served it then, for ten seconds, after two thirds"))
    if options.kill:
        facts.append(("killed", "the broker, with SIGKILL, half way through"))
    return facts
