"""Covers: what the rows of `peers` compare; that messages which warm a connection up do not count
and early ones do; that what a peer lacks is named; and a turn of each peer that is here.

Not here: DejaQ's turn from the command to the rows (test_quick_run.py).
"""

from __future__ import annotations

import asyncio
import os
import queue as queues
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bench.load import PAYLOAD_BYTES
from bench.machine import family_seconds
from bench.peers import peer
from bench.peers.coroutines import CoroutineLoad
from bench.peers.message import WARM_US, payload_of, time_of
from bench.peers.peer import Queue
from bench.peers.threads import ThreadLoad
from bench.questions import peers as question
from bench.systems import peers
from bench.systems.system import Plan
from bench.targets import TARGETS

CASES = ("deliver_p50", "deliver_p99", "send_1", "send_64", "send_64_server_us", "take_1")
PEERS = [kind.name for kind in peers.KINDS if kind.name not in question.OWN]


def test_each_target_has_a_row__and_ratios_are_to_the_best_of_the_others() -> None:
    found = {("dejaq", case): [6.0, 8.0, 4.0] for case in CASES}
    found |= {("dejaq", "delay_early"): [1.0, 0.0, 1.0], ("jetstream", "delay_early"): [3.0]}
    for name, value in (("jetstream", 3.0), ("redis_streams", 2.0), ("postgresql", 12.0)):
        found |= {(name, case): [value] for case in CASES}
    outcome = question.outcome_of(found)
    rows = {row.case: row for row in outcome.rows if row.system == "dejaq"}
    assert {target.case for target in TARGETS if target.question == "peers"} <= set(rows)
    assert (rows["send_64"].ratio, rows["send_64"].ratio_to) == (0.5, "postgresql")
    assert (rows["deliver_p50"].ratio, rows["deliver_p50"].ratio_to) == (3.0, "redis_streams")
    assert rows["deliver_p50_by_jetstream"].ratio == 2.0
    assert rows["send_1_by_postgresql"].ratio == 0.5
    assert (rows["delay_early"].value, rows["delay_early"].ratio) == (2, None)
    assert [row.system for row in outcome.rows][:4] == [
        *("dejaq", "jetstream", "redis_streams", "postgresql")
    ]
    units = {case: question.unit_of(case) for case in rows}
    assert units["send_64_server_us"] == "us"
    assert units["take_1"] == "messages/s"


def test_what_a_peer_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "worker_versions", dict)
    kinds, left_out = peers.available(("rabbitmq_quorum", "redis_streams"))
    assert "rabbitmq_quorum: scripts/install_peers.sh has not installed pika" in left_out
    monkeypatch.setattr(peers, "worker_versions", lambda: {"pika": "1"})
    monkeypatch.setattr(peers, "RABBITMQ", str(tmp_path / "none"))
    kinds, left_out = peers.available(("rabbitmq_quorum",))
    assert kinds == []
    assert left_out == ["rabbitmq_quorum: the program rabbitmq-server is not installed"]


def test_every_queue_says_when_it_syncs() -> None:
    assert all(kind.sync for kind in peers.KINDS)


def test_a_payload_says_a_time() -> None:
    assert time_of(payload_of(1_234_567)) == 1_234_567
    assert len(payload_of(1)) == PAYLOAD_BYTES
    assert payload_of(1) != payload_of(1)


def test_a_family_is_counted_with_who_has_ended() -> None:
    before = family_seconds([os.getpid()])
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert family_seconds([os.getpid()]) - before > 0.2


# --- the load, of a queue in memory --------------------------------------------------------------


class _Memory(peer.Peer, peer.Sender, peer.Consumer):
    """A queue that delivers in order, at once: what has a delay comes early."""

    def __init__(self) -> None:
        self.waiting: queues.Queue[bytes] = queues.Queue()
        self.acked = 0

    def make(self, queue: Queue) -> None:
        pass

    def sender(self, queue: Queue) -> peer.Sender:
        return self

    def consumer(self, queue: Queue) -> peer.Consumer:
        return self

    def send(self, payload: bytes) -> None:
        self.waiting.put(payload)

    def send_later(self, payload: bytes, due_ms: int, delay_ms: int) -> None:
        self.waiting.put(payload)

    def messages(self, idle_seconds: float) -> Iterator[bytes]:
        while not self.waiting.empty():
            yield self.waiting.get()

    def ack(self) -> None:
        self.acked += 1

    def close(self) -> None:
        pass


class _AsyncMemory(peer.AsyncPeer, peer.AsyncSender, peer.AsyncConsumer):
    """The same for coroutines; it waits for more for ever."""

    def __init__(self) -> None:
        self.inner = _Memory()

    async def make(self, queue: Queue) -> None:
        pass

    async def sender(self, queue: Queue) -> peer.AsyncSender:
        return self

    async def consumer(self, queue: Queue) -> peer.AsyncConsumer:
        return self

    async def send(self, payload: bytes) -> None:
        self.inner.send(payload)
        await asyncio.sleep(0)

    async def send_later(self, payload: bytes, due_ms: int, delay_ms: int) -> None:
        self.inner.send(payload)

    async def messages(self) -> AsyncIterator[bytes]:
        for payload in self.inner.messages(0):
            yield payload
        await asyncio.Event().wait()

    async def ack(self) -> None:
        self.inner.ack()

    async def close(self) -> None:
        pass


@pytest.fixture(params=["threads", "coroutines"])
def loaded(request: pytest.FixtureRequest) -> Iterator[tuple[ThreadLoad | CoroutineLoad, _Memory]]:
    """A load and the queue that it is on."""
    if request.param == "threads":
        memory = _Memory()
        yield ThreadLoad(memory), memory
        return
    other = _AsyncMemory()
    load = CoroutineLoad(other)
    yield load, other.inner
    load.end()


def test_what_warms_up_does_not_count__and_what_is_early_is_early(
    loaded: tuple[ThreadLoad | CoroutineLoad, _Memory],
) -> None:
    load, memory = loaded
    queue = Queue("any", delays_ms=(60_000,))
    load.open(queue, 1)
    memory.send(payload_of(WARM_US))
    load.listen(queue, 0.02)
    assert load.pace(10_000, [60_000], 5).rows == 5
    taken = load.take(5, 10.0)
    assert taken.rows == 5
    assert memory.acked == 1 + 1 + 5
    assert all(late_us < -50_000_000 for late_us in taken.late_us)
    load.close()


def test_each_connection_sends__and_a_consumer_that_gets_nothing_ends(
    loaded: tuple[ThreadLoad | CoroutineLoad, _Memory],
) -> None:
    load, memory = loaded
    queue = Queue("any")
    load.open(queue, 4)
    said = load.send(0.02)
    assert said.rows == memory.waiting.qsize() - 4
    load.listen(queue, 0.02)
    assert load.take(said.rows + 100, 10.0).rows == said.rows
    load.close()


# --- the peers -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.may_skip
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_answers_every_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("DEJAQ_SERVICES_ROOT", str(tmp_path))  # so that it is as before afterwards
    kinds, left_out = peers.available((name,))
    if not kinds:
        pytest.skip("; ".join(left_out))
    plan = Plan(100, 0.2, 1, 4, tmp_path, (name,), 1, quick=True)
    figures = question.Turn(kinds[0], plan, 1).run()
    wanted = {*CASES, "deliver_client_us"} | ({"delay_p50"} if kinds[0].patterns else set())
    assert wanted <= set(figures)
    # Processor time is counted in ticks of 10 ms: of a few messages it may be none.
    counted = [case for case in figures if not case.endswith(("_us", "_early"))]
    assert all(figures[case] > 0 for case in counted)
    assert all(figures[case] == 0 for case in figures if case.endswith("_early"))
    assert list(tmp_path.iterdir()) == []
