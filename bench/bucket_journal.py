"""What a broker does whose journal is in a bucket that takes 100 ms to store anything.

The store is the Versity gateway, behind a program that holds each PUT for that long and counts
them (slow_store.py). `bucket_enqueue` are four producers with batches of 8,192, as many on their
way as they may have; `bucket_puts` counts the requests to store meanwhile. `bucket_answered` are
eight threads that send 1,000 messages, wait for the answer, and send the next. `bucket_lateness`
are messages that are sent long before they are due, to one consumer that is a program of its own.
`bucket_puts_idle` counts what is stored while nothing is done.
See: questions/bytes.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import numpy.typing as npt

from bench.load import far_load, random_load
from bench.percentiles import percentile
from bench.results import Row
from bench.systems.dejaq import DejaqSystem, record_batch
from bench.systems.servers import end_program, start_helper
from bench.systems.system import Plan, Stopwatch, batches
from dejaqueue.cli.ports import free_port
from dev.services import missing, start
from dev.services.versitygw import Versitygw

DELAY_MS, BETWEEN_MS = 100, 100
PRODUCERS, PARTITIONS, LARGE_ROWS = 4, 16, 8_192
SENDERS, SMALL_ROWS = 8, 1_000
LATE_ROWS, LATE_FROM_MS, LATE_OVER_MS = 600, 2_000, 12_000
IDLE_SECONDS = 10.0
LONG_SECONDS = 120.0

Report = Callable[[str], None]


def bucket_rows(question: str, plan: Plan, report: Report) -> tuple[list[Row], list[str]]:
    """Rows of a journal in a bucket, and what was left out of them."""
    lacking = missing("versitygw")
    if lacking is not None:
        return [], [f"a journal in a bucket: {lacking} is not installed"]
    found: dict[str, tuple[float, str]] = {}
    with start("versitygw") as store:
        assert isinstance(store, Versitygw)
        with _slow(store) as slow:
            url = f"{store.new_bucket('bench')}/journal?between_ms={BETWEEN_MS}"
            system = DejaqSystem(journal=url)
            system.start(plan.folder)
            try:
                _turn(system, slow, plan, found)
            finally:
                system.stop()
    rows = []
    for name, (value, unit) in found.items():
        report(f"{name}: {value:,.2f} {unit}")
        rows.append(Row(question, "dejaq", name, round(value, 2), unit, None, None))
    return rows, []


@contextmanager
def _slow(store: Versitygw) -> Iterator[subprocess.Popen[str]]:
    """The store, slowed down; the environment of this process names it meanwhile."""
    port = free_port()
    slow = start_helper("bench.slow_store", store.port, port, DELAY_MS)
    there = store.environment | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    try:
        with mock.patch.dict(os.environ, there):
            yield slow
    finally:
        end_program(slow)


def counts_of(slow: subprocess.Popen[str]) -> dict[str, int]:
    """Requests since this was asked last."""
    assert slow.stdin is not None
    assert slow.stdout is not None
    slow.stdin.write("\n")
    slow.stdin.flush()
    counts: dict[str, int] = json.loads(slow.stdout.readline())
    return counts


def _turn(
    system: DejaqSystem,
    slow: subprocess.Popen[str],
    plan: Plan,
    found: dict[str, tuple[float, str]],
) -> None:
    topic = system.new_topic(partitions=PARTITIONS)
    _first(system, topic, PARTITIONS)
    counts_of(slow)
    rate, seconds = _enqueue(system, topic, plan)
    found["bucket_enqueue"] = rate, "messages/s"
    found["bucket_puts"] = counts_of(slow)["puts"] / seconds, "PUTs/s"
    answered_ms = np.array(_answered(system, plan))
    late_ms = _late(system, plan)
    for percent in (50, 99):
        found[f"bucket_answered_p{percent}"] = percentile(answered_ms, percent), "ms"
        found[f"bucket_lateness_p{percent}"] = percentile(late_ms, percent), "ms"
    found["bucket_early"] = float(np.count_nonzero(late_ms < 0)), "messages"
    _wait_still(slow)
    seconds = 2.0 if plan.quick else IDLE_SECONDS
    time.sleep(seconds)
    found["bucket_puts_idle"] = counts_of(slow)["puts"] / seconds, "PUTs/s"


def _first(system: DejaqSystem, topic: str, partitions: int) -> None:
    """Have each partition owned: that takes requests of its own."""
    load = far_load(64 * partitions, system.clock.now_ms(), 0)
    for part in batches(load, 16):
        system.client.send_batch(topic, record_batch(load, part)).raise_for_status()


def _enqueue(system: DejaqSystem, topic: str, plan: Plan) -> tuple[float, float]:
    """Messages a second of producers that never wait, and for how long they sent."""
    load = far_load(max(plan.rows, LARGE_ROWS), system.clock.now_ms(), 1)
    ready = [record_batch(load, part) for part in batches(load, LARGE_ROWS)]
    sent, watch = [0] * PRODUCERS, Stopwatch(plan.seconds)

    def produce(place: int) -> None:
        answers = []
        with system.client.producer(topic) as producer:
            number = 0
            while not (watch.is_over() or (plan.quick and number >= len(ready))):
                answers.append(producer.send_batch(ready[number % len(ready)]))
                number += 1
            for answer in answers:
                result = answer.result()
                result.raise_for_status()
                sent[place] += len(result)

    _together(produce, PRODUCERS)
    seconds = watch.seconds()
    return sum(sent) / seconds, seconds


def _answered(system: DejaqSystem, plan: Plan) -> list[float]:
    """How long answers take, ms, of those who wait for each."""
    topic = system.new_topic(partitions=SENDERS)
    # The first to each partition has to own it before: that is no answer as usual.
    _first(system, topic, SENDERS)
    load = far_load(SENDERS * SMALL_ROWS, system.clock.now_ms(), 2)
    ready = [record_batch(load, part) for part in batches(load, SMALL_ROWS)]
    taken_ms: list[list[float]] = [[] for _ in range(SENDERS)]
    watch = Stopwatch(plan.seconds)

    def send(place: int) -> None:
        while not watch.is_over():
            began = time.perf_counter()
            system.client.send_batch(topic, ready[place]).raise_for_status()
            taken_ms[place].append((time.perf_counter() - began) * 1_000)

    _together(send, SENDERS)
    return [one for found in taken_ms for one in found]


def _late(system: DejaqSystem, plan: Plan) -> npt.NDArray[np.float64]:
    """How late each message was at its consumer, ms; below 0 = early."""
    rows = 60 if plan.quick else LATE_ROWS
    over_ms = 1_500 if plan.quick else LATE_OVER_MS
    topic, path = system.new_topic(partitions=4), plan.folder / "bucket-late.npy"
    receiver = start_helper("bench.receiver", system.url, topic, rows, path)
    try:
        now_ms = system.clock.now_ms()
        load = random_load(rows, now_ms + LATE_FROM_MS, now_ms + LATE_FROM_MS + over_ms, 3)
        system.fill(topic, load, LONG_SECONDS)
        if receiver.wait(LONG_SECONDS) != 0:
            raise AssertionError("the consumer failed")
        late_ms: npt.NDArray[np.float64] = np.load(path)[1] / 1_000
        return late_ms
    finally:
        receiver.kill()  # it has ended, unless something failed
        end_program(receiver)
        path.unlink(missing_ok=True)


def _wait_still(slow: subprocess.Popen[str]) -> None:
    """Until nothing is stored for a second."""
    until = time.monotonic() + 60
    counts_of(slow)
    while time.monotonic() < until:
        time.sleep(1)
        if not counts_of(slow)["puts"]:
            return


def _together(work: Callable[[int], None], count: int) -> None:
    """Run it on so many threads; raise what the first of them raised."""
    raised: list[BaseException] = []

    def run(place: int) -> None:
        try:
            work(place)
        except BaseException as wrong:  # noqa: BLE001 - raised again below
            raised.append(wrong)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
