"""Covers: what the rows of `peers` compare; that messages which warm a connection up do not count
and early ones do; that what a peer lacks is named; and a turn of each peer that is here, by each
of its clients.

Not here: DejaQ's turn from the command to the rows (test_quick_run.py); what is built and pinned
(test_compiled.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue as queues
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
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
from bench.systems.workers import RABBITMQ, Broker
from bench.targets import TARGETS

CASES = (
    *("deliver_p50", "deliver_p99", "send_1", "send_8", "send_64", "send_64_server_us", "take_1"),
)
PEERS = [kind.name for kind in peers.KINDS if kind.name not in {"dejaq", "dejaq_asyncio"}]


_COMPILED = ("jetstream", "redis_streams", "postgresql")


def test_each_target_has_a_row__and_ratios_are_to_the_best_of_the_others() -> None:
    found = {("dejaq", case): [6.0, 8.0, 4.0] for case in CASES}
    found |= {("dejaq", "delay_early"): [1.0, 0.0, 1.0], ("jetstream", "delay_early"): [3.0]}
    for name, value in (("jetstream", 3.0), ("redis_streams", 2.0), ("postgresql", 12.0)):
        found |= {(name, case): [value] for case in CASES}
    found |= {("dejaq_go", case): [6.0] for case in CASES}
    found |= {(f"{name}_go", case): [4.0] for name in _COMPILED for case in CASES}
    outcome = question.outcome_of(found)
    rows = {row.case: row for row in outcome.rows if row.system == "dejaq"}
    by_go = {row.case: row for row in outcome.rows if row.system == "dejaq_go"}
    for target in TARGETS:
        if target.question == "peers":
            assert target.case in (rows if target.system == "dejaq" else by_go)
    assert by_go["send_64"].ratio_to in {f"{name}_go" for name in _COMPILED}
    assert by_go["send_64_by_redis_streams_go"].ratio == 1.5
    assert rows["send_64_by_redis_streams_go"].ratio == 1.5
    assert (rows["send_64"].ratio, rows["send_64"].ratio_to) == (0.5, "postgresql")
    assert (rows["deliver_p50"].ratio, rows["deliver_p50"].ratio_to) == (3.0, "redis_streams")
    assert rows["deliver_p50_by_jetstream"].ratio == 2.0
    assert rows["send_1_by_postgresql"].ratio == 0.5
    assert (rows["delay_early"].value, rows["delay_early"].ratio) == (2, None)
    assert [row.system for row in outcome.rows][:4] == [
        *("dejaq", "jetstream", "redis_streams", "postgresql")
    ]
    assert {name for name, _ in found} == {row.system for row in outcome.rows}  # lost or won
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


def test_what_is_asked_for_is_a_queue_or_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_lack_of", lambda kind: "")
    one, _ = peers.available(("jetstream_go", "bullmq"))
    assert [kind.name for kind in one] == ["jetstream_go", "bullmq"]
    of_redis, _ = peers.available(("redis",))
    assert {kind.server for kind in of_redis} == {"redis"}
    assert {kind.language for kind in of_redis} == {"python", "go", "node"}
    ours, _ = peers.available(("dejaq",))
    assert tuple(kind.name for kind in ours) == question.OWN
    everything, _ = peers.available()
    assert tuple(everything) == peers.KINDS


def test_doqs_api_is_compared_with_doq_alone() -> None:
    found = {("dejaq_doq", "send_1"): [4.0], ("redis_streams", "send_1"): [2.0]}
    (row, _) = question.outcome_of(found).rows
    assert row.ratio is None
    (row, *_) = question.outcome_of(found | {("doq", "send_1"): [8.0]}).rows
    assert (row.ratio, row.ratio_to) == (0.5, "doq")


class _Turn:
    """A turn that takes a while, and that a peer does not stand."""

    late_us: dict[str, list[int]] = {}  # noqa: RUF012

    def __init__(self, kind: peers.Kind, plan: Plan, number: int) -> None:
        self._name, self._number = kind.name, number

    def run(self) -> dict[str, float]:
        if self._name in {"jetstream", "dejaq_asyncio"} and self._number == 2:
            raise AssertionError("3 of 5 messages came")
        return {"send_1": 1.0}


def test_a_peer_that_fails_is_named__and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(question, "Turn", _Turn)
    monkeypatch.setattr(peers, "_lack_of", lambda kind: "")
    monkeypatch.setattr(peers, "versions", lambda kinds: {})
    plan = Plan(1, 1.0, 3, 1, tmp_path, ("jetstream", "bullmq"), 1)
    said: list[str] = []
    outcome = question.measure(plan, said.append)
    assert "jetstream, from round 2 on: 3 of 5 messages came" in outcome.left_out
    assert sum("bullmq send_1" in text for text in said) == 3
    assert sum("jetstream send_1" in text for text in said) == 1
    with pytest.raises(AssertionError, match="3 of 5"):
        question.measure(replace(plan, systems=("dejaq",)), said.append)


def test_no_round_begins_that_would_end_too_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(question, "Turn", _Turn)
    monkeypatch.setattr(question, "WHOLE_SECONDS_MAX", 0.0)
    monkeypatch.setattr(peers, "_lack_of", lambda kind: "")
    monkeypatch.setattr(peers, "versions", lambda kinds: {})
    said: list[str] = []
    outcome = question.measure(Plan(1, 1.0, 3, 1, tmp_path, ("bullmq",), 1), said.append)
    assert outcome.left_out == ["rounds 2 to 3: more than 0 minutes"]
    assert sum("bullmq send_1" in text for text in said) == 1


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


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | None]:
    """One for all that need it, as it takes seconds to start; None = it is not installed."""
    if not Path(RABBITMQ).exists():
        yield None
        return
    broker = Broker("rabbitmq", tmp_path_factory.mktemp("rabbitmq"))
    yield broker
    broker.stop()


@pytest.mark.slow
@pytest.mark.may_skip
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_answers_every_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("DEJAQ_SERVICES_ROOT", str(tmp_path))  # so that it is as before afterwards
    kinds, left_out = peers.available((name,))
    kinds = [kind for kind in kinds if kind.name == name]
    if not kinds:
        pytest.skip("; ".join(left_out))
    if kinds[0].server == "rabbitmq":
        broker = request.getfixturevalue("rabbitmq")
        monkeypatch.setattr(
            peers, "serving", lambda *_: contextlib.nullcontext((broker.url, broker.pids))
        )
    plan = Plan(100, 0.1, 1, 4, tmp_path, (name,), 1, quick=True)
    figures = question.Turn(kinds[0], plan, 1).run()
    wanted = {*CASES, "deliver_client_us"} | ({"delay_p50"} if kinds[0].patterns else set())
    wanted -= {"send_64_server_us"} if kinds[0].server == "doq" else set()
    assert wanted <= set(figures)
    # Processor time is counted in ticks of 10 ms: of a few messages it may be none.
    counted = [case for case in figures if not case.endswith(("_us", "_early"))]
    assert all(figures[case] > 0 for case in counted)
    assert all(figures[case] == 0 for case in figures if case.endswith("_early"))
    assert list(tmp_path.iterdir()) == []
