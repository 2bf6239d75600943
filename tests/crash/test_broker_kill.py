"""SIGKILL of a real broker under load, again and again; then rules 1 to 6 are checked.

Covered: sends, moves, cancels, deliveries and acks of several clients over restarts of the broker.
Not covered: loss of power (tests/crash/test_segment_journal.py has un-synced writes).
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dejaqueue import Client, DejaQError
from dejaqueue.client import TopicStats
from dejaqueue.clock import SystemClock
from dejaqueue.errors import Unavailable
from dejaqueue.model import RowStatus
from tests.crash.broker_process import BrokerProcess
from tests.crash.history import Delivery, History
from tests.crash.stall import watched
from tests.patience import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(900 + 30 * int(os.environ.get("DEJAQ_KILL_CYCLES", "6"))),
]

TOPIC = "kill"
CYCLES = int(os.environ.get("DEJAQ_KILL_CYCLES", "6"))
CLOCK = SystemClock()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path / "data",
        tmp_path / "broker.log",
        # Small, so that segments roll, snapshots are taken and rows are copied all the time.
        journal__segment_bytes=1 << 18,
        journal__snapshot_entries=150,
    )
    process.start()
    yield process
    process.kill()


def send_some(client: Client, history: History, worker: int, turn: int, topic: str = TOPIC) -> None:
    """A batch of keyed messages, due within the next two seconds."""
    rows = random.randint(1, 50)
    now_ms = CLOCK.now_ms()
    keys = [f"{worker}-{turn}-{row}" for row in range(rows)]
    dues = [now_ms + random.randint(0, 2_000) for _ in keys]
    payloads = [key.encode() * random.randint(1, 40) for key in keys]
    with history.lock:
        history.tried.update(zip(keys, payloads, strict=True))
    messages = [
        {"payload": payload, "key": key, "due": due}
        for payload, key, due in zip(payloads, keys, dues, strict=True)
    ]
    try:
        result = client.send_batch(topic, messages)
    except DejaQError:
        return  # not answered: it may be there or not
    with history.lock:
        for key, due, status in zip(keys, dues, result.statuses.tolist(), strict=True):
            if status == RowStatus.OK:
                history.sent[key] = due
    change_some(client, history, keys, topic)


def change_some(client: Client, history: History, keys: list[str], topic: str = TOPIC) -> None:
    """Move one message and cancel another."""
    moved, cancelled = keys[0], keys[-1]
    due_ms = CLOCK.now_ms() + random.randint(500, 2_000)
    history.unsure.add(moved)
    try:
        answer = client.move(topic, key=moved, due=due_ms)
    except DejaQError:
        pass
    else:
        with history.lock:
            history.unsure.discard(moved)
            if answer.ok:
                history.moved[moved] = due_ms
                history.moved_us[moved] = CLOCK.now_us()
    if cancelled == moved:
        return
    history.unsure.add(cancelled)
    try:
        answer = client.cancel(topic, key=cancelled)
    except DejaQError:
        return
    with history.lock:
        history.unsure.discard(cancelled)
        if answer.ok:
            history.cancelled_us[cancelled] = CLOCK.now_us()


def produce(
    url: str,
    history: History,
    worker: int,
    stop: threading.Event,
    topic: str = TOPIC,
    pause_s: float = 0.01,
) -> None:
    with Client(url) as client:
        turn = 0
        while not stop.is_set():
            turn += 1
            send_some(client, history, worker, turn, topic)
            stop.wait(pause_s)


def consume(url: str, history: History, stop: threading.Event, topic: str = TOPIC) -> None:
    while not stop.is_set():
        # On a machine that is very busy a broker may need longer to be back than clients wait.
        with contextlib.suppress(Unavailable), Client(url) as client:
            for batch in client.consume_batches(topic, idle_ms=500, lease_ms=2_000):
                received_us = CLOCK.now_us()
                rows = list(batch.messages())
                with history.lock:
                    history.deliveries.extend(
                        Delivery(m.key or "", m.id, m.attempt, m.due_ms, m.payload, received_us)
                        for m in rows
                    )
                if random.random() < 0.1:
                    continue  # forgotten: comes back when its lease ends
                try:
                    settled = batch.ack()
                except DejaQError:
                    continue
                assert settled is not None
                acked_us = CLOCK.now_us()
                with history.lock:
                    for message, status in zip(rows, settled.statuses.tolist(), strict=True):
                        if status == RowStatus.OK:
                            history.acked_us[message.key or ""] = acked_us


def drain(url: str, topic: str = TOPIC) -> None:
    """Wait until nothing is left."""
    stats: TopicStats | DejaQError = TopicStats()
    with Client(url) as client:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                stats = client.stats(topic)
            except Unavailable as error:  # it is being read, after a kill
                stats = error
            else:
                if stats.scheduled + stats.leased == 0:
                    return
            threading.Event().wait(0.1)
    raise AssertionError(f"not drained: {stats}")


def test_nothing_is_lost_early_or_twice__sigkill_under_load(broker: BrokerProcess) -> None:
    def kill(_: int) -> None:
        broker.kill()
        broker.start()

    check_under_load(broker, CYCLES, kill)
    assert broker.stop() == 0


def check_under_load(
    broker: BrokerProcess,
    turns: int,
    disturb: Callable[[int], None],
    excused: Callable[[], bool] = lambda: False,
) -> None:
    """Clients work while a broker is disturbed; then nothing was lost, early or twice."""
    seed = int(os.environ.get("DEJAQ_KILL_SEED", random.randrange(1 << 30)))
    random.seed(seed)
    print(f"DEJAQ_KILL_SEED={seed}")
    history, stop_producing, stop_consuming = History(), threading.Event(), threading.Event()
    with Client(broker.url) as client:
        client.create_topic(TOPIC, partitions=2)
    failures: list[BaseException] = []

    def run(function: Callable[..., None], *arguments: object) -> threading.Thread:
        def guarded() -> None:
            try:
                function(*arguments)
            except BaseException as error:  # noqa: BLE001 - shown at the end of the test
                failures.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    with watched(
        lambda: len(history.tried) + len(history.deliveries), broker, excused=excused
    ) as stalls:
        producers = [run(produce, broker.url, history, n, stop_producing) for n in range(2)]
        consumers = [run(consume, broker.url, history, stop_consuming) for _ in range(2)]
        try:
            for turn in range(turns):
                threading.Event().wait(random.uniform(0.3, 1.5))
                disturb(turn)
        finally:
            stop_producing.set()
            for thread in producers:
                thread.join(PATIENCE_SECONDS)
            try:
                drain(broker.url)
            finally:
                stop_consuming.set()
                for thread in consumers:
                    thread.join(PATIENCE_SECONDS)
    assert not failures, failures
    assert not stalls, stalls
    print(f"sent={len(history.sent)} got={len(history.deliveries)} acked={len(history.acked_us)}")
    assert len(history.acked_us) > 100
    assert history.faults()[:10] == []
