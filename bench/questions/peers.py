"""What does a single message cost, and when does it come, beside the queues that others use?

The same load for each, by the clients that its users have, and a new server for each turn. Two
programs of their own are its clients: one sends, one takes. A send counts when the server has
confirmed it, a message when it was acked. A row without more in its name is by the client for
Python, `…_go` by the compiled one for Go, `bullmq` by Node; `dejaq_doq` is DejaQ's door for DOQ's
gRPC API, and `doq` a DOQ that runs at DOQ_ADDRESS.

- `deliver_…`: 100 messages a second, one a call: from the call of `send` to the moment that a
  consumer which waits has the message.
- `send_1`: one connection, one message after the other, a second.
- `send_8`, `send_64`: so many connections (`--senders` at most), each one message after the other:
  threads or goroutines that have a client each, or tasks of an event loop where the client is
  asynchronous.
- `take_1`: of what these have sent, one consumer takes and acks one by one, a second.
- `delay_…`: 200 messages a second with delays of 0.2 to 2 s, by the queue's own means: how late
  they come, and how many come early. `delay_one_queue_…` is RabbitMQ's other pattern. What it costs
  is both the sending and the taking. In the first round alone: it has 400 messages, and takes long.

`…_server_us` and `…_client_us`: processor time of a message, by /proc: of all the server's
processes, and of the load's. An idle server that spins pays for that too.

Acks differ: PostgreSQL, Redis, BullMQ, beanstalkd and DejaQ by DOQ's API answer each; DejaQ by
Python and by Go sends them on, and counts when all are answered, for which both wait in the end;
RabbitMQ, JetStream and Celery send them and answer none. How each syncs stands beside its version.
Delays have their own shapes: RabbitMQ's are dead letters of queues with a time to live
(bench/peers/rabbitmq.py), beanstalkd's and DOQ's are whole seconds, Celery's are kept by a worker
in its memory, Redis streams have none.

The whole takes ten minutes on a quiet machine. A round that would not end in twelve is left out.

DejaQ's ratio is to the best of the others by clients of the same kind: Python and Node, or Go; a
row `…_by_PEER` is to that peer. `--systems` takes these names, or those of servers (`redis`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bench.machine import family_seconds
from bench.peers.peer import Queue
from bench.percentiles import percentile, spread
from bench.results import Outcome, Row
from bench.systems import peers
from bench.systems.peers import ONE_QUEUE, Kind, Program
from bench.systems.servers import ServerFailed
from bench.systems.system import Plan

QUESTION = "peers"
ROUNDS_MAX = 3
SECONDS_MAX = 1.0
WHOLE_SECONDS_MAX = 720.0
"""No round is begun that would end later, if it took as long as the one before."""
DELAY_TIMES = 2.0
"""`delay` is so much longer than the other cases: it is measured once."""
DELAYED_PER_SECOND = 200
DELIVERED_PER_SECOND, DELIVER_TIMES = 100, 1.5
"""Half of that, and for longer: whoever syncs twice for a message has to keep up on a slow disk."""
DELAYS_MS = tuple(range(200, 2_001, 100))
QUICK_DELAYS_MS = (200, 300, 500)
IDLE_SECONDS = 5.0
"""A consumer that gets nothing for so long is given up: more than any delay, rounded up."""
WARM_ROWS = 20
"""Messages of `deliver` that do not count."""
OWN = ("dejaq", "dejaq_asyncio", "dejaq_go", "dejaq_doq")
SIDE_BY_SIDE = {
    "deliver_p50": ("jetstream", "redis_streams"),
    "send_1": ("postgresql",),
    "send_64": ("redis_streams",),
}
"""Cases with a row of their own beside a peer, by its client for Python and by the compiled one."""
COMPILED = "_go"
PERCENTS = {"p50": 50.0, "p99": 99.0, "max": 100.0}
RATE = "messages/s"

Report = Callable[[str], None]
Found = dict[tuple[str, str], list[float]]
Figures = dict[str, float]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    kinds, left_out = peers.available(plan.systems)
    found: Found = {}
    late: dict[str, list[int]] = {}
    rounds, began = min(plan.rounds, ROUNDS_MAX), time.monotonic()
    for number in range(1, rounds + 1):
        round_began = time.monotonic()
        for kind in kinds.copy():
            turn = Turn(kind, plan, number)
            try:
                figures = turn.run()
            except (AssertionError, ServerFailed) as failed:
                if kind.name in OWN:
                    raise
                # What others do not stand is said, and is no reason to lose the rest.
                left_out.append(f"{kind.name}, from round {number} on: {failed}")
                kinds.remove(kind)
                continue
            for case, value in figures.items():
                found.setdefault((kind.name, case), []).append(value)
                report(f"round {number}: {kind.name} {case}: {value:,.4g} {unit_of(case)}")
            for name, late_us in turn.late_us.items():
                late.setdefault(name, []).extend(late_us)
        took, ends = time.monotonic() - round_began, time.monotonic() - began
        report(f"round {number}: {took:.0f} s")
        if number < rounds and ends + took > WHOLE_SECONDS_MAX:
            minutes = WHOLE_SECONDS_MAX / 60
            left_out.append(f"rounds {number + 1} to {rounds}: more than {minutes:.0f} minutes")
            break
    outcome = outcome_of(found)
    outcome.left_out = left_out
    outcome.versions = peers.versions(kinds)
    percents = [*np.arange(0.5, 99.5, 0.5), *np.arange(99.5, 100.0, 0.1)]
    for name, late_us in late.items():
        ms = [max(percentile(late_us, float(p)) / 1_000, 0.001) for p in percents]
        outcome.series[name] = {"percent": [float(p) for p in percents], "ms": ms}
    return outcome


class Turn:
    """All cases of one queue, on a new server.

    Attributes:
        late_us: of `delay`, by the system's name, with the pattern behind it where there are two.
    """

    def __init__(self, kind: Kind, plan: Plan, seed: int) -> None:
        self._kind, self._plan, self._seed = kind, plan, seed
        self._seconds = min(plan.seconds, SECONDS_MAX)
        self.late_us: dict[str, list[int]] = {}

    def run(self) -> Figures:
        """Figures by case."""
        with (
            peers.serving(self._kind, self._plan.folder) as (url, self._pids),
            _programs(self._kind, url) as (self._sender, self._taker),
        ):
            figures = self._deliver() | self._rates()
            for pattern in self._kind.patterns if self._seed == 1 else ():
                figures |= self._delay(pattern)
            return figures

    def _deliver(self) -> Figures:
        queue = self._queue("deliver", is_waited_on=True)
        rows = WARM_ROWS + int(DELIVERED_PER_SECOND * DELIVER_TIMES * self._seconds)
        said, costs = self._paced(queue, DELIVERED_PER_SECOND, rows)
        late_us = said["late_us"][WARM_ROWS:]
        names = {name: PERCENTS[name] for name in ("p50", "p99")}
        return _under("deliver", _lateness(late_us, names) | costs)

    def _rates(self) -> Figures:
        queue, sender, figures = self._queue("rates"), self._sender, Figures()
        sender.ask("make", queue)
        sent = 0
        for connections in (1, 8, 64):
            sender.ask("open", queue, connections=min(connections, self._plan.senders))
            before = self._server_seconds()
            said = sender.ask("send", seconds=self._seconds)
            sent += said["rows"]
            figures |= self._rate(f"send_{connections}", said, self._server_seconds() - before)
            sender.ask("close")
        taker = self._taker
        taker.ask("listen", queue, idle_seconds=IDLE_SECONDS)
        before = self._server_seconds()
        said = taker.ask("take", rows=sent - 1, seconds=self._seconds)
        figures |= self._rate("take_1", said, self._server_seconds() - before)
        taker.ask("close")
        return figures

    def _queue(
        self,
        name: str,
        pattern: str = "",
        delays_ms: tuple[int, ...] = (),
        *,
        is_waited_on: bool = False,
    ) -> Queue:
        """A queue that no other kind has, wherever they are."""
        return Queue(f"{self._kind.name}_{name}", pattern, delays_ms, is_waited_on)

    def _server_seconds(self) -> float:
        """Processor time of the server; not a number if it is not ours to look at."""
        return family_seconds(self._pids) if self._pids else math.nan

    def _rate(self, case: str, said: dict[str, Any], server_seconds: float) -> Figures:
        if not said["rows"]:
            raise AssertionError(f"{self._kind.name}: {case}: nothing in {self._seconds} s")
        costs = _costs(said["rows"], server_seconds, said["processor_seconds"])
        return {case: said["rows"] / said["seconds"]} | _under(case, costs)

    def _delay(self, pattern: str) -> Figures:
        delays_ms = QUICK_DELAYS_MS if self._plan.quick else DELAYS_MS
        queue = self._queue(f"delay{pattern}", pattern, delays_ms, is_waited_on=True)
        rows = max(len(delays_ms), int(DELAYED_PER_SECOND * DELAY_TIMES * self._seconds))
        # The same for all in a round, and not in order: a queue that is in order waits for it.
        drawn = np.random.default_rng(self._seed).choice(delays_ms, rows)
        said, costs = self._paced(queue, DELAYED_PER_SECOND, rows, [int(one) for one in drawn])
        is_other = pattern == ONE_QUEUE
        self.late_us[self._kind.name + (f" {pattern}" if is_other else "")] = said["late_us"]
        figures = _lateness(said["late_us"], PERCENTS) | costs
        figures["early"] = sum(one < 0 for one in said["late_us"])
        return _under(f"delay_{pattern}" if is_other else "delay", figures)

    def _paced(
        self, queue: Queue, per_second: int, rows: int, delays_ms: list[int] | None = None
    ) -> tuple[dict[str, Any], Figures]:
        """Send at an even rate, with a consumer that waits: what it took, and what that cost."""
        sender, taker = self._sender, self._taker
        sender.ask("make", queue)
        sender.ask("open", queue, connections=1)
        taker.ask("listen", queue, idle_seconds=IDLE_SECONDS)
        before = self._server_seconds()
        taker.tell("take", rows=rows, seconds=20 * (self._seconds + IDLE_SECONDS))
        sent = sender.ask("pace", per_second=per_second, delays_ms=delays_ms or [], rows=rows)
        said = taker.answer()
        server_seconds = self._server_seconds() - before
        sender.ask("close")
        taker.ask("close")
        if said["rows"] < rows:
            lost = f"{said['rows']} of {rows} messages came"
            raise AssertionError(f"{self._kind.name}: {queue.name}: {lost}")
        client_seconds = sent["processor_seconds"] + said["processor_seconds"]
        return said, _costs(rows, server_seconds, client_seconds)


@contextmanager
def _programs(kind: Kind, url: str) -> Iterator[tuple[Program, Program]]:
    programs: list[Program] = []
    try:
        programs += (Program(kind, url), Program(kind, url))
        for program in programs:
            program.wait()
        yield programs[0], programs[1]
    finally:
        for program in programs:
            program.end()


def _lateness(late_us: list[int], percents: dict[str, float]) -> Figures:
    return {name: percentile(late_us, percent) / 1_000 for name, percent in percents.items()}


def _costs(rows: int, server_seconds: float, client_seconds: float) -> Figures:
    found = {"server_us": server_seconds, "client_us": client_seconds}
    known = {name: seconds for name, seconds in found.items() if not math.isnan(seconds)}
    return {name: seconds * 1e6 / rows for name, seconds in known.items()}


def _under(case: str, figures: Figures) -> Figures:
    return {f"{case}_{name}": value for name, value in figures.items()}


# --- rows ---------------------------------------------------------------------------------------


def unit_of(case: str) -> str:
    """What a case is counted in."""
    if case.endswith("_us"):
        return "us"
    if case.endswith("_early"):
        return "messages"
    return "ms" if case.endswith(("_p50", "_p99", "_max")) else RATE


def outcome_of(found: Found) -> Outcome:
    """Rows of what was measured: medians, and ratios to the others'; `early` is of all rounds."""
    outcome = Outcome()
    values: dict[tuple[str, str], float] = {}
    for (name, case), ones in found.items():
        outcome.spreads[f"{name}/{case}"] = spread(ones)
        is_sum = unit_of(case) == "messages"
        values[name, case] = sum(ones) if is_sum else outcome.spreads[f"{name}/{case}"]["median"]
    for (name, case), value in values.items():
        unit = unit_of(case)
        row = Row(QUESTION, name, case, round(value, 3), unit)
        best = _best(name, case, values) if name in OWN else None
        if best is not None:
            ratio = round(value / values[best, case], 3)
            row = Row(QUESTION, name, case, round(value, 3), unit, ratio, best)
        outcome.rows.append(row)
        for peer in _beside(case) if name in OWN else ():
            other = values.get((peer, case))
            if other:
                ratio, beside = round(value / other, 3), f"{case}_by_{peer}"
                outcome.rows.append(Row(QUESTION, name, beside, row.value, unit, ratio, peer))
    order = list(dict.fromkeys(row.case for row in outcome.rows))
    outcome.rows.sort(key=lambda row: order.index(row.case))
    return outcome


def _beside(case: str) -> list[str]:
    return [f"{peer}{by}" for by in ("", COMPILED) for peer in SIDE_BY_SIDE.get(case, ())]


def _best(own: str, case: str, values: dict[tuple[str, str], float]) -> str | None:
    """The peer by a client of the same kind that does best.

    None = there is none, or nothing to divide by. DOQ's API is compared with DOQ alone.
    """
    peers_values = {
        name: value
        for (name, of), value in values.items()
        if of == case and name not in OWN and value > 0 and _are_alike(own, name)
    }
    if not peers_values or unit_of(case) == "messages":
        return None
    most = unit_of(case) == RATE
    return (max if most else min)(peers_values, key=lambda name: peers_values[name])


def _are_alike(own: str, peer: str) -> bool:
    if own == "dejaq_doq":
        return peer == "doq"
    return own.endswith(COMPILED) == peer.endswith(COMPILED) and peer != "doq"
