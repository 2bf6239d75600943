"""What others notice while the journal of one shard hangs, on a server.

Room: bench. One broker with its journal on PostgreSQL and one worker. Topics whose records are in
logs of their own are sent to one message a call, each from a thread; then the log of another topic
hangs for 20 s, as a session of the server holds the place of its next record and does not commit,
while a message waits for that place.

- `hung_idle_p99`: until an answer, in ms, before; `hung_beside_p99`: meanwhile, of the others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from bench.outages import Report
from bench.percentiles import percentile
from bench.systems.dejaq import DejaqSystem
from bench.systems.servers import let_in
from bench.systems.system import Plan
from dejaqueue import Client
from dejaqueue.errors import DejaQError
from dev.services import start

OTHERS = 4
HANGS_SECONDS, QUICK_SECONDS = 20.0, 1.0
TOPICS_MAX = 64
WAIT_SECONDS_MAX = 60.0
_LOG = "SELECT DISTINCT log FROM dejaq_record WHERE position(%b::bytea in content) > 0"
_HOLD = (
    "INSERT INTO dejaq_record (log, number, content) SELECT %b::bigint, max(number) + 1, ''::bytea "
    "FROM dejaq_record WHERE log = %b::bigint"
)


def hung_figures(plan: Plan, report: Report) -> dict[str, float]:
    """Both figures, in ms."""
    let_in(plan.folder)
    os.environ["DEJAQ_SERVICES_ROOT"] = str(plan.folder)
    seconds = QUICK_SECONDS if plan.quick else HANGS_SECONDS
    with start("postgresql") as service:
        system = DejaqSystem(service.url, settings=("dispatch.workers=1",))
        system.start(plan.folder)
        try:
            (sick, log), *others = _apart(system, service.url)
            topics = [topic for topic, _ in others]
            idle = _answers(system.client, topics, lambda: time.sleep(seconds / 2))
            with _waits_behind(system.client, sick) as begin:

                def hang() -> None:
                    with _held(service.url, log):
                        begin()
                        time.sleep(seconds)

                beside = _answers(system.client, topics, hang)
        finally:
            system.stop()
    figures = {
        "hung_idle_p99": percentile(np.asarray(idle), 99),
        "hung_beside_p99": percentile(np.asarray(beside), 99),
    }
    report(", ".join(f"{name} {value:.3g} ms" for name, value in figures.items()))
    return figures


def _apart(system: DejaqSystem, url: str) -> list[tuple[str, int]]:
    """Topics of which no two are in one log, and the number of each one's log."""
    found: dict[int, str] = {}
    for number in range(TOPICS_MAX):
        topic, marker = system.new_topic(), b"in which log is %d?" % number
        system.client.send(topic, marker)
        found.setdefault(_log_of(url, marker), topic)
        if len(found) > OTHERS:
            return [(topic, log) for log, topic in found.items()]
    raise AssertionError(f"{TOPICS_MAX} topics are in {len(found)} logs")


def _log_of(url: str, marker: bytes) -> int:
    import psycopg

    with psycopg.connect(url) as connection:
        return int(connection.execute(_LOG, (marker,), binary=True).fetchall()[0][0])


@contextmanager
def _held(url: str, log: int) -> Iterator[None]:
    """The next place of a log is held by a session that has not said what becomes of it."""
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(_HOLD, (log, log))
        try:
            yield
        finally:
            connection.rollback()


@contextmanager
def _waits_behind(client: Client, topic: str) -> Iterator[Callable[[], None]]:
    """What sends a message to a topic and does not wait for it; its thread has ended after that.

    The client sends again what the broker gives up, so it is durable in the end; an error says that
    the hanging log was given up for good, and is one of ours.
    """
    failed: list[DejaQError] = []

    def send() -> None:
        try:
            client.send(topic, b"waits")
        except DejaQError as error:
            failed.append(error)

    thread = threading.Thread(target=send)
    try:
        yield thread.start
    finally:
        if thread.ident is not None:
            thread.join(WAIT_SECONDS_MAX)
    if thread.is_alive() or failed:
        raise AssertionError(f"{topic} did not go on: {failed}")


def _answers(client: Client, topics: list[str], run: Callable[[], None]) -> list[float]:
    """Milliseconds until each answer, while something is done."""
    found: list[float] = []
    is_over = threading.Event()

    def sender(topic: str) -> None:
        while not is_over.is_set():
            began = time.perf_counter()
            client.send(topic, b"other")
            found.append(1_000 * (time.perf_counter() - began))

    threads = [threading.Thread(target=sender, args=(topic,)) for topic in topics]
    for thread in threads:
        thread.start()
    try:
        run()
    finally:
        is_over.set()
        for thread in threads:
            thread.join(WAIT_SECONDS_MAX)
    if any(thread.is_alive() for thread in threads):
        raise AssertionError("another topic hung, too")
    return found
