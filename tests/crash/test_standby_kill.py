"""Covers: two sites as processes, with a directory and with S3: the active one is killed under
load, or paused, and its standby promoted; the old one starts again or goes on; a promotion that is
killed; two that are promoted at once; a bucket that is away. Without DEJAQ_RELIABILITY=all the
first two.

Not covered: each step and refusal of a standby (tests/unit/broker/standby/test_standby.py).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from dejaqueue import Client
from dejaqueue.backup.archive import Archive
from dejaqueue.errors import DejaQError, NotActive, Unavailable
from tests.backups import newest, reach_ms
from tests.cli.conftest import invoke
from tests.crash.broker_process import BrokerProcess
from tests.integration.metrics_page import fetch
from tests.object_store import S3Server, s3_server
from tests.patience import PATIENCE_SECONDS, until

FAR = 3_600
ARCHIVE_MS = 50
ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
RARE = (pytest.mark.skipif(not ALL, reason="make reliability runs it"), pytest.mark.may_skip)


def rarely(test: Callable[..., None]) -> Callable[..., None]:
    """A test that `make reliability` runs."""
    for mark in RARE:
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    yield from s3_server()


@pytest.fixture
def processes() -> Iterator[list[BrokerProcess]]:
    found: list[BrokerProcess] = []
    yield found
    for one in found:
        if one.is_up:
            os.kill(one.pid, signal.SIGCONT)
            one.kill()


Start = Callable[..., BrokerProcess]


@pytest.fixture
def start(tmp_path: Path, processes: list[BrokerProcess]) -> Start:
    def start(name: str, **settings: object) -> BrokerProcess:
        small = {"journal__segment_bytes": 1 << 18, "journal__snapshot_entries": 300}
        process = BrokerProcess(tmp_path / name, tmp_path / f"{name}.log", **small, **settings)
        process.start()
        processes.append(process)
        return process

    return start


def place(tmp_path: Path, s3: S3Server, kind: str) -> str:
    return str(tmp_path / "archive") if kind == "directory" else f"{s3.new_bucket()}/dejaq"


def active(start: Start, where: str, name: str = "active") -> BrokerProcess:
    broker = start(
        name,
        backup__url=where,
        backup__archive_interval_ms=ARCHIVE_MS,
        backup__interval_ms=86_400_000,
    )
    with Client(broker.url) as client:
        client.create_topic("singles", partitions=3, lease_ms=500)
        for topic in ("left", "right"):
            client.create_topic(topic, partitions=2)
    until(lambda: bool(Archive.open(where, make=True).ids()), "the first backup")
    until(lambda: newest(where).chain, "it has a chain")
    return broker


def now_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251 - the brokers' is the machine's


def payloads(url: str, topic: str) -> set[bytes]:
    with Client(url) as client:
        return set(client.peek(topic, limit=1_000_000).column("payload").to_pylist())


def live(url: str, topic: str) -> list[bytes]:
    with Client(url) as client:
        return list(client.peek(topic, limit=1_000_000).column("payload").to_pylist())


class Work:
    """Threads that send, ack, and send in transactions, until that is refused or fails."""

    def __init__(self, url: str) -> None:
        self.sent: list[tuple[int, bytes]] = []
        """Behind when each was acknowledged."""
        self.acked: list[tuple[int, bytes]] = []
        self.pairs: list[tuple[int, int]] = []
        self.handed: list[tuple[int, bytes]] = []
        self.errors: list[DejaQError] = []
        self._url, self._ends = url, threading.Event()
        works = (self._send, self._consume, self._transact)
        self._threads = [threading.Thread(target=self._until, args=(one,)) for one in works]
        for thread in self._threads:
            thread.start()

    def _until(self, work: Callable[[Client], None]) -> None:
        try:
            with Client(self._url, retry_ms_max=0) as client:
                work(client)
        except DejaQError as error:
            self.errors.append(error)

    def _send(self, client: Client) -> None:
        number = 0
        while not self._ends.is_set():
            payload = b"single-%d" % number
            client.send("singles", payload, delay=FAR if number % 2 else 0)
            self.sent.append((now_ms(), payload))
            number += 1

    def _consume(self, client: Client) -> None:
        while not self._ends.is_set():
            with client.consume("singles", idle_ms=200, prefetch=20) as messages:
                for message in messages:
                    self.handed.append((now_ms(), message.payload))
                    message.ack(wait=True)
                    self.acked.append((now_ms(), message.payload))
                    if self._ends.is_set():
                        break

    def _transact(self, client: Client) -> None:
        number = 0
        while not self._ends.is_set():
            with client.transaction() as transaction:
                transaction.send("left", b"pair-%d" % number, delay=FAR)
                transaction.send("right", b"pair-%d" % number, delay=FAR)
            self.pairs.append((now_ms(), number))
            number += 1

    def is_warm(self) -> bool:
        return min(len(self.sent), len(self.acked), len(self.pairs)) > 40

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def check(self, url: str, until_ms: int) -> None:
        """What was acknowledged by then is at the broker: whole, and once."""
        singles, left, right = live(url, "singles"), live(url, "left"), live(url, "right")
        assert len(singles) == len(set(singles))
        assert sorted(left) == sorted(right), "a transaction is whole"
        there, acked = set(singles), {payload for _, payload in self.acked}
        lost = [one for at, one in self.sent if at <= until_ms and one not in there | acked]
        assert lost == []
        assert {b"pair-%d" % one for at, one in self.pairs if at <= until_ms} <= set(left)
        assert [one for at, one in self.acked if at <= until_ms and one in there] == []


def starts_not(broker: BrokerProcess) -> str:
    """Why a broker does not start."""
    with pytest.raises(AssertionError, match="did not start") as refused:
        broker.start()
    return str(refused.value)


@pytest.mark.parametrize("kind", [pytest.param("directory", marks=RARE), "s3"])
def test_a_killed_broker_is_replaced_by_its_standby__and_does_not_come_back(
    tmp_path: Path, s3: S3Server, start: Start, kind: str
) -> None:
    where = place(tmp_path, s3, kind)
    old = active(start, where)
    new = start("standby", standby__url=where, standby__poll_ms=20)
    work = Work(old.url)
    until(work.is_warm, "there is load")
    until(lambda: payloads(new.url, "left"), "it is followed")
    page = fetch(new.http_port)[2]
    assert {"dejaq_standby_behind_seconds", "dejaq_standby_entries_total"} <= set(page.split())
    archived = set(fetch(old.http_port)[2].split())
    assert {f"dejaq_archive_{name}" for name in ("lag_seconds", "pieces_total")} <= archived
    old.kill()
    work.end()
    reached = reach_ms(where)
    shown = invoke("standby", "--url", new.url)
    assert "following, as of" in shown.output, shown.output
    done = invoke("promote", "--yes", "--url", new.url)
    assert done.exit_code == 0, done.output
    assert "active, after" in done.output
    work.check(new.url, reached)
    assert invoke("standby", "--url", new.url).output == "active\n"
    refusal = starts_not(old)
    assert "this broker was replaced: standby" in refusal
    assert new.url in refusal
    with Client(new.url) as client:
        client.send("singles", b"later", delay=FAR)
    new.kill()
    new.start()  # the same command as before
    assert b"later" in payloads(new.url, "singles")
    work.check(new.url, reached)


def test_a_paused_broker_stops_serving__when_it_goes_on(
    tmp_path: Path, s3: S3Server, start: Start
) -> None:
    where = place(tmp_path, s3, "directory")
    old = active(start, where)
    new = start("standby", standby__url=where, standby__poll_ms=20)
    work = Work(old.url)
    until(work.is_warm, "there is load")
    os.kill(old.pid, signal.SIGSTOP)
    with Client(new.url) as client:
        client.promote()
    promoted_ms = now_ms()
    reached = reach_ms(where)
    os.kill(old.pid, signal.SIGCONT)
    ending = threading.Thread(target=work.end)
    ending.start()
    with Client(old.url, retry_ms_max=0) as client, pytest.raises(NotActive, match="was replaced"):
        while True:
            with suppress(Unavailable):  # a machine with other work: it is awake, and no more yet
                client.send("singles", b"to the old one", delay=FAR)
            assert now_ms() - promoted_ms < PATIENCE_SECONDS * 1_000
    with Client(old.url) as client, pytest.raises(NotActive):
        client.peek("singles")
    ending.join(PATIENCE_SECONDS)
    assert not ending.is_alive()
    work.check(new.url, reached)
    assert "this broker was replaced" in old.log_text()
    old.stop()
    assert "this broker was replaced" in starts_not(old)


@rarely
def test_a_promotion_that_is_killed_goes_on(tmp_path: Path, s3: S3Server, start: Start) -> None:
    where = place(tmp_path, s3, "directory")
    old = active(start, where)
    new = start("standby", standby__url=where)
    work = Work(old.url)
    until(work.is_warm, "there is load")
    old.kill()
    work.end()
    reached = reach_ms(where)
    asked = threading.Thread(target=lambda: invoke("promote", "--yes", "--url", new.url))
    asked.start()
    until(lambda: list((tmp_path / "archive" / "fences").glob("*")), "the fence is there")
    new.kill()
    asked.join()
    new.start()

    def is_active() -> bool:
        with Client(new.url) as client:
            return bool(client.standby()["state"] == "active")

    until(is_active, "it goes on by itself")
    work.check(new.url, reached)
    assert "this broker was replaced" in starts_not(old)


@rarely
def test_of_two_standbys_one_is_promoted(tmp_path: Path, s3: S3Server, start: Start) -> None:
    where = place(tmp_path, s3, "s3")
    old = active(start, where)
    both = [start(name, standby__url=where) for name in ("left", "right")]
    with Client(old.url) as client:
        client.send("left", b"1", delay=FAR)
    at_ms = now_ms()
    until(lambda: reach_ms(where) >= at_ms, "it is archived")

    def promote(broker: BrokerProcess) -> DejaQError | None:
        try:
            with Client(broker.url) as client:
                client.promote()
        except DejaQError as error:
            return error
        return None

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(promote, both))
    winner = outcomes.index(None)
    assert isinstance(outcomes[1 - winner], NotActive), outcomes
    assert payloads(both[winner].url, "left") == {b"1"}
    with Client(both[1 - winner].url, retry_ms_max=0) as client, pytest.raises(NotActive):
        client.send("left", b"2")


@rarely
def test_a_bucket_that_is_away_is_waited_for(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    s3 = S3Server(f"http://{host}:{port}")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    where = f"{s3.new_bucket()}/dejaq"
    old = active(start, where)
    new = start("standby", standby__url=where)
    with Client(new.url) as standby, Client(old.url) as client:
        until(lambda: not standby.standby().get("trouble"), "it follows")
        server.stop()
        sent = {b"%d" % number for number in range(30)}
        for payload in sent:
            client.send("left", payload, delay=FAR)
        until(lambda: standby.standby().get("trouble"), "it is told")
        assert standby.standby()["behind_ms"] > 0
        assert payloads(new.url, "left") == set()
        server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
        server.start()
        until(lambda: payloads(new.url, "left") == sent, "it is caught up with")
        old.kill()
        standby.promote()
        assert payloads(new.url, "left") == sent
    server.stop()
