"""SQS's calls: how many a second beside moto's server and ElasticMQ, and how late after days?

One client for all: raw HTTP requests of the JSON protocol, signed (bench/sqs_load.py). DejaQ
verifies the signatures, and a message is on disk before it is answered; the others keep messages in
memory. 64 connections, each with one request on its way.

- `send`: one message of 100 characters a request; messages a second.
- `receive_delete`: ten at a time are received, then deleted in a batch; messages a second.
- `delay_…`: messages with delays of 10 minutes to 10 days, five of a second, at a broker whose
  clock leaves out the time in which nothing is due, and goes as ever from a millisecond before
  each; lateness at a client that waits by long polling, in milliseconds. It polls after each leap
  of the clock, as it would all the time: over a leap of hours the broker would take it for dead.

Rounds go over all systems in turn; the first one warms up. What counts is the median.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import Any

import numpy as np

from bench.percentiles import percentile, spread
from bench.results import Outcome, Row
from bench.systems.servers import start_helper
from bench.systems.sqs import SqsSystem, available, peer_versions
from bench.systems.system import Plan
from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.cli.serve import SWITCH_INTERVAL_SECONDS
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.setting_groups import SqsSettings
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock

QUESTION = "sqs"
ROUNDS_MAX = 3
CONNECTIONS, FILL_CONNECTIONS = 64, 4
FILL_PER_SECOND = {"dejaq": 40_000, "elasticmq": 40_000, "moto": 200}
"""More than is received in a second, so that nobody waits for a message."""
CASES = ("send", "receive_delete")
RATE = "messages/s"
DELAYED_QUICK = 500
DELAYED_MAX, DELAY_SECONDS_MIN, DELAY_SECONDS_MAX = 100_000, 600, 864_000
DUE_AT_ONCE = 5
"""Messages of one second, on average: each second in which any is due takes some milliseconds, so
that 100,000 such seconds would take longer than all that is measured beside them."""
PERCENTS = {"p50": 50.0, "p99": 99.0, "max": 100.0}
SILENCE_SECONDS = 60.0
TICK_SECONDS = 0.0002
POLL_SECONDS = 20
"""As long as SQS lets a receive wait."""

Report = Callable[[str], None]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    systems, left_out = available()
    rates: dict[tuple[str, str], list[float]] = {}
    loader = start_helper("bench.sqs_load")
    running: dict[str, SqsSystem] = {}
    try:
        for name, start in systems.items():
            running[name] = start(plan.folder)
        for number in range(min(plan.rounds, ROUNDS_MAX) + 1):
            for name in running:
                # moto slows down with each message that its queue has.
                running[name] = system = running[name].with_new_queue(f"bench-{number}")
                for case, rate in _rates(loader, system, name, plan, report).items():
                    if number:
                        rates.setdefault((name, case), []).append(rate)
                        report(f"round {number}: {name}: {case}: {rate:,.0f} {RATE}")
    finally:
        for system in running.values():
            system.server.stop()
        assert loader.stdin is not None
        assert loader.stdout is not None
        loader.stdin.close()
        loader.wait(30)
        loader.stdout.close()
    outcome = outcome_of(rates)
    delayed = min(DELAYED_QUICK if plan.quick else DELAYED_MAX, plan.rows)
    for case, value in delays(delayed, report).items():
        unit = "messages" if case == "early" else "ms"
        outcome.rows.append(Row(QUESTION, "dejaq", f"delay_{case}", round(value, 3), unit))
    outcome.left_out += left_out
    outcome.versions |= peer_versions()
    return outcome


def _rates(
    loader: subprocess.Popen[str], system: SqsSystem, name: str, plan: Plan, report: Report
) -> dict[str, float]:
    """Messages a second of each case, on a queue that is empty at first."""

    def run(case: str, connections: int, seconds: float, messages: int) -> float:
        values = system.load(case=case, connections=connections, seconds=seconds, messages=messages)
        assert loader.stdin is not None
        assert loader.stdout is not None
        print(json.dumps(values), file=loader.stdin, flush=True)
        found = json.loads(loader.stdout.readline())
        if found["failed"]:
            told = f"{name}: {case}: {found['failed']} requests failed"
            if name == "dejaq":
                raise RuntimeError(told)
            report(told)  # they count for nothing
        return float(found["messages"] / found["seconds"])

    sent = run("send", CONNECTIONS, plan.seconds, 1 << 40)
    fill = int(plan.seconds * FILL_PER_SECOND[name])
    run("fill", FILL_CONNECTIONS, 10 * plan.seconds, fill)
    return {"send": sent, "receive_delete": run("receive_delete", CONNECTIONS, plan.seconds, fill)}


def outcome_of(rates: dict[tuple[str, str], list[float]]) -> Outcome:
    """Medians, and DejaQ's over that of each peer; the row of a target has the ratio to ElasticMQ.

    >>> rates = {("dejaq", "send"): [8.0], ("moto", "send"): [2.0], ("elasticmq", "send"): [4.0]}
    >>> [(row.case, row.value, row.ratio, row.ratio_to) for row in outcome_of(rates).rows][:2]
    [('send', 8.0, 2.0, 'elasticmq'), ('send_by_moto', 8.0, 4.0, 'moto')]
    """
    outcome = Outcome()
    medians = {place: spread(found)["median"] for place, found in rates.items()}
    for (name, case), found in rates.items():
        outcome.spreads[f"{name}/{case}"] = spread(found)
        value = round(medians[name, case], 1)
        if name != "dejaq":
            outcome.rows.append(Row(QUESTION, name, case, value, RATE))
            continue
        for peer, shown in (("elasticmq", case), ("moto", f"{case}_by_moto")):
            base = medians.get((peer, case))
            ratio = round(value / base, 3) if base else None
            to = peer if base else None
            outcome.rows.append(Row(QUESTION, name, shown, value, RATE, ratio, to))
    return outcome


# --- long delays -------------------------------------------------------------------------------


class _Consumer(threading.Thread):
    """Receives by long polling, notes when, and deletes; rests when it has all that was due.

    Attributes:
        late_us: of each message: when it was there, less when it was due; microseconds.
        empty_count: polls that brought nothing.
    """

    def __init__(self, queue: _Queue, clock: VirtualClock, start_ms: int) -> None:
        super().__init__(name="bench-consumer", daemon=True)
        self._queue, self._clock, self._start_ms = queue, clock, start_ms
        self._told = threading.Condition()
        self._wanted: int | None = 0
        self.late_us: list[int] = []
        self.empty_count = 0

    def tell(self, wanted: int | None) -> None:
        """How many messages it is to have in all; None = it ends."""
        with self._told:
            self._wanted = wanted
            self._told.notify()

    def run(self) -> None:
        """Until it is told to end."""
        while self._goes_on():
            found = self._queue.ask(
                "ReceiveMessage", MaxNumberOfMessages=10, WaitTimeSeconds=POLL_SECONDS
            )
            now_us = self._clock.utc_us()
            messages = found.get("Messages", [])
            if not messages:
                self.empty_count += 1
                continue
            handles = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(messages)
            ]
            self._queue.ask("DeleteMessageBatch", Entries=handles)
            for message in messages:
                due_ms = self._start_ms + int(message["Body"]) * 1_000
                self.late_us.append(now_us - due_ms * 1_000)

    def _goes_on(self) -> bool:
        """Wait until there is something to poll for; False = it ends."""
        with self._told:
            self._told.wait_for(lambda: self._wanted is None or self._wanted > len(self.late_us))
            return self._wanted is not None


def delays(count: int, report: Report) -> dict[str, float]:
    """Lateness, in milliseconds, of so many messages with long delays; how many came early."""
    clock = VirtualClock()
    settings = BrokerSettings(journal=JournalSettings(url="memory:"), sqs=SqsSettings(enabled=True))
    broker = Broker(settings, clock)
    broker.start()
    switch_seconds = sys.getswitchinterval()
    # As in a broker's own process, which this one is here: else a message waits for the clock's
    # thread, and the consumer for both.
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    server = HttpServer(Service(broker, Gate(broker.keys), lambda: True), "127.0.0.1", 0)
    server.start()
    try:
        with closing(_Queue(server.port)) as queues:
            url = queues.ask("CreateQueue", QueueName="delays")["QueueUrl"]
        broker.alter_topic("delays", {"max_delay_ms": 0})
        start_ms = clock.utc_ms()
        with closing(_Queue(server.port, url)) as queue:
            seconds = _send_delayed(queue, count)
            consumer = _Consumer(queue, clock, start_ms)
            consumer.start()
            try:
                _run_clock(broker, clock, start_ms, np.asarray(seconds), consumer)
            finally:
                consumer.tell(None)
                consumer.join(SILENCE_SECONDS)
    finally:
        sys.setswitchinterval(switch_seconds)
        server.stop()
        broker.stop()
    late_ms = np.asarray(consumer.late_us) / 1_000
    told = f"delay: {len(late_ms):,} of {count:,} messages came"
    report(f"{told}, {consumer.empty_count} polls brought nothing")
    if len(late_ms) != count:
        raise RuntimeError(f"delay: {len(late_ms)} messages came, of {count}")
    found = {name: percentile(late_ms, percent) for name, percent in PERCENTS.items()}
    return found | {"early": float((late_ms < 0).sum())}


class _Queue:
    """Operations, of one queue if it is named, over a connection."""

    def __init__(self, port: int, url: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SILENCE_SECONDS)
        self._given = {"QueueUrl": url} if url else {}

    def ask(self, name: str, **values: Any) -> Any:
        """What an operation answers."""
        body = json.dumps(values | self._given)
        self._connection.request("POST", "/sqs", body, {"x-amz-target": f"AmazonSQS.{name}"})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{name}: {content.decode()}")
        return json.loads(content)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _send_delayed(queue: _Queue, count: int) -> list[int]:
    draw = Random(7)
    instants = draw.sample(
        range(DELAY_SECONDS_MIN, DELAY_SECONDS_MAX), max(1, count // DUE_AT_ONCE)
    )
    seconds = draw.choices(instants, k=count)
    for first in range(0, count, 10):
        entries = [
            {"Id": str(number), "MessageBody": str(delay), "DelaySeconds": delay}
            for number, delay in enumerate(seconds[first : first + 10])
        ]
        answer = queue.ask("SendMessageBatch", Entries=entries)
        assert len(answer["Successful"]) == len(entries), answer
    return seconds


def _run_clock(
    broker: Broker,
    clock: VirtualClock,
    start_ms: int,
    seconds: np.typing.NDArray[np.int64],
    consumer: _Consumer,
) -> None:
    """Leave out the time in which nothing is due; else go as the time goes."""
    instants, counts = np.unique(seconds, return_counts=True)
    wanted = 0
    for instant, count in zip(instants.tolist(), counts.tolist(), strict=True):
        wanted += count
        clock.advance(us=(start_ms + instant * 1_000 - 1) * 1_000 - clock.utc_us())
        consumer.tell(wanted)
        _spin(lambda: _is_polled(broker), "a poll")
        before = time.perf_counter()

        def has_come(wanted: int = wanted) -> bool:
            nonlocal before
            now = time.perf_counter()
            clock.advance(us=round((now - before) * 1e6))
            before = now
            return len(consumer.late_us) >= wanted

        _spin(has_come, f"{wanted} messages")


def _is_polled(broker: Broker) -> bool:
    return any(one["credit"] for one in broker.consumers("delays"))


def _spin(is_so: Callable[[], bool], what: str) -> None:
    ends = time.perf_counter() + SILENCE_SECONDS
    while not is_so():
        if time.perf_counter() > ends:
            raise RuntimeError(f"delay: waited for {what}")
        time.sleep(TICK_SECONDS)  # tidy: allow sleep, because it is what makes the time go
