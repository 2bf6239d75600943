"""A crash at every append of a transaction: afterwards all of it counts, or nothing.

Covered: a copy of the journals after each append that a consume-process-produce over two topics
makes, read by another broker, with and without a client that asks again.
Not covered: torn appends (tests/crash/test_segment_journal.py), a killed process
(tests/crash/test_transactions_kill.py).
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.client import Client
from dejaqueue.clock import Clock, SystemClock
from dejaqueue.errors import Refused
from dejaqueue.journal.interface import Append
from dejaqueue.journal.segments.log import ShardLog
from dejaqueue.local import LocalTransport
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import PATIENCE_SECONDS

INPUTS, OUTPUTS = [b"1", b"2", b"3"], [b"a", b"b", b"c", b"d"]
TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class Copy:
    """The journals at one time, and what the client knew by then."""

    path: Path
    name: str
    is_staged: bool
    is_committed: bool


class Copies:
    """A copy of the journals after each append."""

    def __init__(self, journals: Path, target: Path) -> None:
        self.taken: list[Copy] = []
        self.name = ""
        self.is_staged = self.is_committed = False
        self._journals, self._target = journals, target
        self._lock = threading.RLock()
        self._append = ShardLog.append_all

    def append(self, log: ShardLog, appends: Sequence[Append]) -> None:
        with self._lock:  # one append at a time, so that a copy is a state of the whole disk
            for append in appends:  # and each is a step
                self._append(log, [append])
                self.take()

    def take(self) -> None:
        with self._lock:  # partitions append after the answer, too
            path = self._target / str(len(self.taken))
            shutil.copytree(self._journals, path)
            self.taken.append(Copy(path, self.name, self.is_staged, self.is_committed))


def start(path: Path, clock: Clock) -> Broker:
    journal = JournalSettings(url=str(path), segment_bytes=1 << 16, reserve_bytes=1 << 16)
    broker = Broker(BrokerSettings(journal=journal), clock)
    broker.start()
    return broker


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copies:
    """The disk after each step of a transaction that is committed."""
    made = Copies(tmp_path / "journals", tmp_path / "copies")
    broker = start(tmp_path / "journals", SystemClock())
    broker.create_topic(Topic("in", partitions=2))
    broker.create_topic(Topic("out", partitions=2))
    with Client(transport=LocalTransport(broker)) as client:
        client.send_batch("in", INPUTS[:2])
        client.send_batch("in", INPUTS[2:])
        with client.consume_batches("in", max_messages=3) as batches:
            taken = list(batches)
            monkeypatch.setattr(ShardLog, "append_all", lambda *given: made.append(*given))
            transaction = client.transaction(timeout=TIMEOUT_MS / 1000)
            transaction.send_batch("out", OUTPUTS[:2])
            made.name = transaction.name
            transaction.ack(taken)
            transaction.send_batch("out", OUTPUTS[2:])
            made.is_staged = True
            made.take()
            transaction.commit()
            made.is_committed = True
            made.take()
    broker.stop()
    monkeypatch.undo()
    return made


def look(broker: Broker, clock: VirtualClock) -> dict[str, list[bytes]]:
    """What there is in both topics, when all leases and transactions are over."""
    with Client(transport=LocalTransport(broker), clock=clock) as client:
        for topic in ("in", "out"):
            client.peek(topic)  # reads all partitions
        clock.advance(ms=2 * TIMEOUT_MS)
        for _ in range(1_000):  # partitions ask each other; each look takes its turn with them
            if not client.transactions("in") + client.transactions("out"):
                break
        else:
            raise AssertionError("still undecided")
        return {t: sorted(client.peek(t)["payload"].to_pylist()) for t in ("in", "out")}


NOTHING = {"in": INPUTS, "out": []}
ALL: dict[str, list[bytes]] = {"in": [], "out": OUTPUTS}


def test_nobody_asks_again__all_or_nothing(copies: Copies) -> None:
    seen = []
    for copy in copies.taken:
        clock = VirtualClock(SystemClock().now_ms())
        broker = start(copy.path, clock)
        found = look(broker, clock)
        broker.stop()
        assert found in ([ALL] if copy.is_committed else [NOTHING, ALL])
        seen.append(found == ALL)
    assert len(seen) >= 8
    assert seen == sorted(seen)  # from the decision on, and for ever
    assert set(seen) == {False, True}


@pytest.mark.parametrize("in_time", [True, False])
def test_the_client_commits_again__its_answer_is_what_is_there(
    copies: Copies, in_time: bool
) -> None:
    answers = set()
    for copy in copies.taken:
        if not copy.is_staged:
            continue
        clock = VirtualClock(SystemClock().now_ms())
        broker = start(copy.path, clock)
        if not in_time:
            clock.advance(ms=TIMEOUT_MS)
        places = ["in/0", "in/1", "out/0", "out/1"]
        try:
            broker.transactions.decide(copy.name, places, commit=True).result(PATIENCE_SECONDS)
            answer = True
        except Refused:
            answer = False
        found = look(broker, clock)
        broker.stop()
        assert found == (ALL if answer else NOTHING)
        assert answer or not copy.is_committed
        answers.add(answer)
    assert answers == ({True} if in_time else {True, False})
