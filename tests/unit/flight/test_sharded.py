"""Batches to all shards: numbers, what is sent again, and connections of callers.

Streams that the test answers. Not covered: shards that move (tests/cluster/test_spread.py).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import dejaqueue.http
from dejaqueue.broker.broker import Broker
from dejaqueue.client.alarm import Alarm
from dejaqueue.client.credentials import Tls
from dejaqueue.clock import SteadyClock
from dejaqueue.errors import BadRequest, DejaQError, Elsewhere, Forbidden, Refused, Unavailable
from dejaqueue.flight import sharded as module
from dejaqueue.flight.sharded import ShardedBroker, ShardedBrokers, ShardedTarget
from dejaqueue.model import Topic
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.unit.client.fake_transport import SECONDS_MAX, FakeTransport

BATCH = pa.record_batch({"payload": pa.array([b"a", b"b"], pa.binary())})


class Sender:
    """A target over streams of the test's, and the replies."""

    def __init__(self, patch: pytest.MonkeyPatch, **stream: Any) -> None:
        patch.setattr(module, "AGAIN_MS", 1)
        self.transport = FakeTransport()
        self.alarm = Alarm(SteadyClock(), "test")
        self.replies: list[Reply] = []
        self._replied = threading.Condition()
        described = WriteStream("t", **stream)
        self.target = ShardedTarget(described, self.transport.open_write, self.alarm)

    def submit(self, number: int, batch: pa.RecordBatch = BATCH) -> None:
        self.target.submit(number, batch, self._reply)

    def _reply(self, reply: Reply) -> None:
        with self._replied:
            self.replies.append(reply)
            self._replied.notify_all()

    def wait(self, count: int = 1) -> list[Reply]:
        with self._replied:
            assert self._replied.wait_for(lambda: len(self.replies) >= count, SECONDS_MAX)
        return self.replies

    def sent(self, stream: int = 1, count: int = 1) -> list[int]:
        """Numbers on a stream, when there are so many."""
        write = self.transport.wait_writes(stream)
        write.wait_for(count)
        return [number for number, _, _ in write.sent]


@pytest.fixture
def senders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Sender] = []

    def make(**stream: Any) -> Sender:
        made.append(Sender(monkeypatch, **stream))
        return made[-1]

    yield make
    for sender in made:
        sender.alarm.stop()


# --- batches ------------------------------------------------------------------------------------


def test_callers_without_a_name_may_use_the_same_numbers__each_gets_its_own_back(
    senders: Any,
) -> None:
    sender = senders()
    sender.submit(5)
    sender.submit(5)
    assert sender.sent(count=2) == [1, 2]
    [write] = sender.transport.writes
    assert write.stream.producer.startswith("onward-"), "so shards know what came twice"
    write.answer(1)
    write.answer(0)
    assert [(reply.number, reply.rows) for reply in sender.wait(2)] == [(5, 2), (5, 2)]


def test_a_producer_keeps_its_name_and_numbers__and_a_number_is_under_way_once(
    senders: Any,
) -> None:
    sender = senders(producer="shop")
    sender.submit(5)
    assert sender.sent() == [5]
    assert sender.transport.writes[0].stream.producer == "shop"
    sender.submit(5)
    [refused] = sender.wait()
    assert isinstance(refused.error, Refused)
    sender.transport.writes[0].answer(0)
    assert sender.wait(2)[1].error is None
    sender.submit(5)
    assert sender.sent(count=2) == [5, 5], "it was answered: who sends it again may"


@pytest.mark.parametrize("error", [Unavailable("gone"), Elsewhere("moved", 50, "b")])
def test_what_shards_recognise_is_sent_again_under_its_number__and_replied_to_once(
    senders: Any, error: DejaQError
) -> None:
    sender = senders()
    sender.submit(7)
    sender.sent()
    sender.transport.writes[0].answer(0, error=error)
    assert sender.sent(stream=2) == [1]
    sender.transport.writes[1].answer(0)
    assert [(reply.number, reply.error) for reply in sender.wait()] == [(7, None)]


def test_a_change_that_may_have_been_made_is_not_sent_again__one_that_was_not_is(
    senders: Any,
) -> None:
    sender = senders(op="cancel")
    batch = pa.record_batch({"id": pa.array([1], pa.int64())})
    sender.submit(1, batch)
    sender.sent()
    sender.transport.writes[0].answer(0, error=Elsewhere("moved", 50, "b"))
    sender.sent(stream=2)
    sender.transport.writes[1].answer(0, error=Unavailable("gone"))
    [reply] = sender.wait()
    assert isinstance(reply.error, Unavailable)
    assert len(sender.transport.writes) == 2


@pytest.mark.parametrize("error", [Forbidden("no"), BadRequest("a", "b", "c")])
def test_a_refusal_is_the_reply__and_the_stream_is_kept(senders: Any, error: DejaQError) -> None:
    sender = senders()
    sender.submit(1)
    sender.sent()
    sender.transport.writes[0].answer(0, error=error)
    assert sender.wait()[0].error is error
    sender.submit(2)
    assert sender.sent(count=2) == [1, 2]


def test_it_is_not_sent_again_for_ever(senders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLLOW_MS_MAX", -1)
    sender = senders()
    sender.submit(1)
    sender.sent()
    sender.transport.writes[0].answer(0, error=Unavailable("gone"))
    assert isinstance(sender.wait()[0].error, Unavailable)


def test_what_breaks_in_a_strange_way_is_said_to_be_unavailable(senders: Any) -> None:
    sender = senders(op="cancel")
    sender.submit(1, pa.record_batch({"id": pa.array([1], pa.int64())}))
    sender.sent()
    sender.transport.writes[0].sent[0][2].set_exception(RuntimeError("strange"))
    error = sender.wait()[0].error
    assert isinstance(error, Unavailable)
    assert "strange" in str(error)


def test_batches_of_other_columns_have_a_stream_of_their_own(senders: Any) -> None:
    sender = senders()
    keyed = BATCH.append_column("key", pa.array(["a", "b"]))
    for batch in (BATCH, keyed, BATCH):
        sender.submit(1, batch)
    assert (sender.sent(1, 2), sender.sent(2)) == ([1, 3], [2])
    for write, place in ((0, 0), (0, 1), (1, 0)):
        sender.transport.writes[write].answer(place)
    sender.target.close()
    assert len(sender.wait(3)) == 3
    assert all(write.is_closed for write in sender.transport.writes)


def test_who_wants_no_replies_gets_none(senders: Any) -> None:
    sender = senders(acks="none")
    sender.submit(1)
    sender.sent()
    sender.transport.writes[0].answer(0)
    sender.transport.refuses = Unavailable("gone")
    sender.submit(2, BATCH.append_column("key", pa.array(["a", "b"])))
    assert sender.replies == []


def test_columns_are_checked_before_anything_is_sent(senders: Any) -> None:
    sender = senders()
    with pytest.raises(BadRequest, match="colour"):
        sender.target.check_schema(pa.schema([("payload", pa.binary()), ("colour", pa.utf8())]))
    assert sender.transport.writes == []


def test_who_must_not_wait_is_answered_after_the_end_too(senders: Any) -> None:
    sender = senders()
    apart = ThreadPoolExecutor(1)
    target = ShardedTarget(WriteStream("t"), sender.transport.open_write, sender.alarm, apart)
    apart.shutdown()
    replies: list[Reply] = []
    target.submit(9, BATCH, replies.append)
    [reply] = replies
    assert (reply.number, reply.rows, type(reply.error)) == (9, 2, Unavailable)


# --- callers ------------------------------------------------------------------------------------


class Cluster:
    """A broker that knows where others are."""

    clock = VirtualClock()
    settings = keys = payloads = None

    def __init__(self) -> None:
        self.nodes = [{"node": "a", "url": "dejaq://a:1"}, {"node": "b", "url": "dejaq://b:1"}]
        self.spread = 2

    def cluster(self) -> dict[str, Any]:
        return {"nodes": self.nodes, "node": "a"}

    def topic(self, name: str) -> Topic:
        return Topic(name, spread=self.spread)

    def home(self, name: str) -> str:
        return "" if name.startswith("t=0") else "dejaq://b:1"


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ShardedBrokers]:
    brokers = ShardedBrokers(cast(Broker, Cluster()))
    yield brokers
    brokers.close()


def test_each_caller_has_connections_of_its_own__and_they_are_kept(
    brokers: ShardedBrokers,
) -> None:
    mine, nobodys = brokers.of("key"), brokers.of(None)
    assert brokers.of("key") is mine
    assert nobodys is not mine


def test_who_has_files_for_tls_reaches_brokers_in_plain_text_as_well() -> None:
    brokers = ShardedBrokers(cast(Broker, Cluster()), Tls())
    for url in ("dejaq://127.0.0.1:1", "dejaqs://127.0.0.1:1"):
        transport = brokers._transport("key", url)
        assert not transport.shares_clock
        transport.close()
    brokers.close()


def test_who_has_not_called_for_longest_makes_room(
    brokers: ShardedBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CALLERS_MAX", 2)
    first, second = brokers.of("1"), brokers.of("2")
    brokers.of("1")
    brokers.of("3")
    assert brokers.of("1") is first
    assert brokers.of("2") is not second


def test_new_files_mean_new_connections__those_in_use_go_on_until_the_next_time(
    brokers: ShardedBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[ShardedBroker] = []
    monkeypatch.setattr(ShardedBroker, "close", lambda self: closed.append(self))
    before = brokers.of("key")
    brokers.renew()
    assert brokers.of("key") is not before
    assert closed == []
    brokers.renew()
    assert closed == [before]


def test_a_broker_that_stops_or_has_lost_the_cluster_says_so() -> None:
    cluster = Cluster()
    brokers = ShardedBrokers(cast(Broker, cluster))
    cluster.nodes = []
    with pytest.raises(Unavailable, match="lost touch with the cluster"):
        brokers.of("key")
    brokers.close()
    brokers.close()
    with pytest.raises(Unavailable, match="the broker is stopping"):
        brokers.of("key")


class Routed(FakeTransport):
    """A transport to all shards: notes where it is told that they are."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.homes: dict[str, str] = {}

    def learn_shards(self, topic: Topic, home: Any) -> None:
        self.homes = {f"t={number}-2": home(f"t={number}-2") for number in range(2)}


@pytest.fixture
def routed() -> Routed:
    return Routed(actions={"stats": {"consumers": [{"name": "c"}]}})


@pytest.fixture
def sharded(routed: Routed) -> Iterator[ShardedBroker]:
    broker = ShardedBroker(cast(Broker, Cluster()), cast(Any, routed))
    yield broker
    broker.close()


def test_shards_without_an_owner_elsewhere_are_looked_for_here(
    sharded: ShardedBroker, routed: Routed
) -> None:
    sharded.open_stream(WriteStream("t"))
    assert routed.homes == {"t=0-2": "dejaq://a:1", "t=1-2": "dejaq://b:1"}


def test_streams_that_nobody_closes_are_shared__and_the_oldest_makes_room(
    sharded: ShardedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TARGETS_MAX", 2)
    first = sharded.open_write(WriteStream("t"))
    assert sharded.open_write(WriteStream("t")) is first
    assert sharded.open_stream(WriteStream("t")) is not first
    sharded.open_write(WriteStream("t", producer="1"))
    sharded.open_write(WriteStream("t", producer="2"))
    assert sharded.open_write(WriteStream("t")) is not first


def test_a_topic_that_got_another_spread_is_another(sharded: ShardedBroker) -> None:
    before = sharded.runtime("t")
    assert sharded.runtime("t") is before
    cast(Any, sharded._broker).spread = 3
    assert sharded.runtime("t").topic.spread == 3


def test_calls_go_to_the_shards(sharded: ShardedBroker, routed: Routed) -> None:
    assert sharded.consumers("t") == [{"name": "c"}]
    assert routed.calls == [("stats", {"topic": "t"})]
    answer: Future[dict[str, Any]] = sharded.ask("cancel_where")
    assert answer.result() == {}
    assert routed.calls[1] == ("cancel_where", {})
    assert routed.repeats == [True, False]


def test_a_page_without_rows_is_a_page_all_the_same(sharded: ShardedBroker, routed: Routed) -> None:
    schema = pa.schema([("id", pa.int64())], metadata={b"next": b"7"})
    routed.pages = [schema.empty_table(), pa.table({"id": [1, 2]})]
    found, [page] = sharded.read("peek", {"topic": "t"})
    assert (page.num_rows, page.schema.metadata) == (0, {b"next": b"7"})
    assert found.metadata == {b"next": b"7"}
    _, [page] = sharded.read("peek", {"topic": "t"})
    assert page.num_rows == 2
    assert routed.tickets == [{"topic": "t", "op": "peek"}] * 2


def test_it_has_whatever_http_asks_a_broker_on_the_way_of_messages() -> None:
    """HTTP holds it for a Broker, so that types do not see what it lacks."""
    (folder,) = dejaqueue.http.__path__
    parts = ("flow.py", "gather.py", "leasing/*.py", "routes/sending.py", "routes/changing.py")
    files = [file for part in parts for file in Path(folder).glob(part)]
    asked = {
        name
        for file in files
        for name in re.findall(r"(?<![a-z.])(?:self\.)?_?broker\.([a-z_]+)", file.read_text())
    }
    assert {"view", "open_write", "open_consume", "clock"} <= asked
    made = ShardedBroker(cast(Broker, _Asked()), cast(Any, None))
    assert [name for name in sorted(asked) if not hasattr(made, name)] == []


class _Asked:
    clock = settings = keys = payloads = None
