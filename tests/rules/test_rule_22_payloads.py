"""Rule 22: large payloads are kept apart, and nobody who sends or takes messages notices.

Also here: what happens when the payload store is away, when a payload is missing or damaged, and
when a broker is killed between storing a payload and its message. Not covered: real clients and
object stores (tests/integration/test_large_payloads.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.maintenance import copy_rows
from dejaqueue.errors import ResourceExhausted, Unavailable
from dejaqueue.model import Topic
from dejaqueue.payloads.payload_store import PayloadStore
from dejaqueue.schema.references import MARK
from dejaqueue.setting_groups import PayloadSettings
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply, SettleOp
from tests.patience import PATIENCE_SECONDS, until
from tests.payload_stores import FaultyBucket
from tests.rules.broker_fixture import TOPIC, BrokerFixture

INLINE = 1_024
LARGE = [os.urandom(INLINE + 1), b"L" * 50_000, os.urandom(200_000)]
AWAY_MS, DAMAGED_MS, STALE_MS = 5_000, 60_000, 60_000
FAR_MS = 10**13


class Kept:
    """A broker with a payload store that fails when it is told to."""

    def __init__(self, root: Path, path: Path | None, **topic: Any) -> None:
        self.keep_ms = topic.pop("keep_ms", 0)
        settings = PayloadSettings(url=str(root), inline_bytes_max=INLINE, keep_ms=self.keep_ms)
        self.bucket = FaultyBucket(root)
        self.fixture = BrokerFixture(path, payloads=settings, **topic)
        self._fail_at_will()

    def _fail_at_will(self) -> None:
        payloads = self.fixture.broker.payloads
        payloads.store = PayloadStore(self.bucket, payloads.clock.now_us)

    @property
    def collector(self) -> Any:
        return self.fixture.broker._payload_collector

    @property
    def stored(self) -> int:
        """How many payloads are in the store."""
        return sum("ended" not in path.parts for path in self.bucket.files)

    def restart(self) -> None:
        self.fixture.restart()
        self._fail_at_will()

    def crash(self) -> None:
        self.fixture.crash()
        self._fail_at_will()

    def back(self) -> None:
        """The store is there again, and whoever was told that it is away asks again."""
        self.bucket.is_away = False
        self.fixture.advance(1_000)

    def take(self, topic: str = TOPIC, **options: Any) -> list[bytes]:
        """Have somebody take and ack what there is."""
        consumer = self.fixture.consumer(topic=topic, **options)
        found: list[bytes] = []
        while got := consumer.take_all():
            for one in got:
                found += one.payloads
                consumer.ack(one)
        consumer.session.close(release=True)
        return found

    def clean(self) -> None:
        """Have the collector do at once what it does in a day."""
        self.fixture.settle_down()
        self.collector.delete_doomed(0)
        self.collector.collect(orphan_ms=-FAR_MS)  # files have the machine's time, not this one
        self.collector.delete_doomed(0)


MakeKept = Callable[..., Kept]


@pytest.fixture(params=["memory", "segments"])
def make_kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeKept]:
    made: list[Kept] = []

    def make(**topic: Any) -> Kept:
        path = None if request.param == "memory" else tmp_path / "journal"
        made.append(Kept(tmp_path / "payloads", path, **topic))
        return made[-1]

    yield make
    for one in made:
        one.fixture.stop()


@pytest.fixture
def on_files(tmp_path: Path) -> Iterator[MakeKept]:
    """For what needs a restart."""
    made: list[Kept] = []

    def make(**topic: Any) -> Kept:
        made.append(Kept(tmp_path / "payloads", tmp_path / "journal", **topic))
        return made[-1]

    yield make
    for one in made:
        one.fixture.stop()


def test_who_takes_messages_notices_nothing__and_the_journal_has_little(
    make_kept: MakeKept,
) -> None:
    kept = make_kept()
    sent = [b"small", *LARGE, b"x" * INLINE, b""]
    kept.fixture.send(sent)
    assert kept.stored == len(LARGE)
    core = kept.fixture.broker.runtime(TOPIC).partitions[0].core
    assert core.journal.appended_bytes < 10_000
    assert [row["payload"] for row in kept.fixture.peek()] == sent
    _, batches = kept.fixture.broker.read("scan", {"topic": TOPIC, "partition": 0})
    scanned = [batch.column("payload").to_pylist() for batch in batches]
    assert [payload for payloads in scanned for payload in payloads] == sent
    assert kept.take() == sent


def test_what_looks_like_a_reference_is_a_payload(make_kept: MakeKept) -> None:
    kept = make_kept()
    kept.fixture.send([b"real" * INLINE])
    core = kept.fixture.broker.runtime(TOPIC).partitions[0].core
    locators = core.engine.locators(core.views.live_in(0, 1 << 40, 10))
    reference = core.journal.read(locators, ("payload",)).column(0)[0].as_py()
    assert reference.startswith(MARK)
    tricks = [reference, MARK, MARK + b"\0", MARK + b"x" * 2 * INLINE]
    kept.fixture.send(tricks[:3])  # none is large, so nothing is waited for
    kept.fixture.send(tricks)
    assert kept.take() == [b"real" * INLINE, *tricks[:3], *tricks]


def test_batches_of_a_stream_keep_their_order__while_payloads_are_stored(
    make_kept: MakeKept,
) -> None:
    kept = make_kept()
    replies: list[Future[Reply]] = []
    writer = kept.fixture.broker.open_write(WriteStream(TOPIC, "enqueue").check())
    sent: list[bytes] = []
    for number in range(30):
        payload = b"%02d" % number + b"L" * (5_000 if number % 3 == 0 else 0)
        replies.append(Future())
        batch = pa.record_batch({"payload": pa.array([payload], pa.binary())})
        writer.submit(number + 1, batch, replies[-1].set_result)
        sent.append(payload)
    assert all(reply.result(PATIENCE_SECONDS).error is None for reply in replies)
    assert kept.take() == sent


def test_while_the_store_is_away_large_payloads_are_refused_and_small_ones_go_on(
    make_kept: MakeKept,
) -> None:
    kept = make_kept()
    kept.bucket.is_away = True
    refused = kept.fixture.send([b"small", LARGE[0]])
    assert isinstance(refused.error, Unavailable)
    assert "503 Slow Down" in str(refused.error)
    assert kept.fixture.send([b"small"]).error is None
    assert kept.take() == [b"small"]
    kept.back()
    assert kept.fixture.send(LARGE).error is None
    assert kept.take() == LARGE


def test_a_payload_that_cannot_be_read_now_comes_later__without_an_attempt_counted(
    make_kept: MakeKept,
) -> None:
    kept = make_kept(max_attempts=2)
    kept.fixture.send([LARGE[0], b"small"])
    kept.bucket.is_away = True
    consumer = kept.fixture.consumer()
    for _ in range(4):
        got = [payload for one in consumer.take_all() for payload in one.payloads]
        assert got in ([b"small"], [])
        kept.fixture.advance(AWAY_MS)
    kept.back()
    kept.fixture.advance(AWAY_MS)
    [late] = [one for one in consumer.take_all() if LARGE[0] in one.payloads]
    consumer.ack(late)
    assert kept.fixture.counts()["dead"] == 0


def test_who_acks_a_delivery_of_which_a_payload_is_away_is_answered_for_what_it_got(
    make_kept: MakeKept,
) -> None:
    kept = make_kept()
    kept.fixture.send([b"first", LARGE[0], b"small"])
    kept.bucket.is_away = True
    consumer = kept.fixture.consumer()
    got = consumer.take_all()
    assert [payload for one in got for payload in one.payloads] == [b"first", b"small"]
    for one in got:
        reply = consumer.ack(one)
        assert reply.rows in (0, len(one.ids))
        assert not reply.all_statuses().any()
    kept.back()
    kept.fixture.advance(AWAY_MS)
    assert consumer.payloads() == [LARGE[0]]


def test_credit_of_what_is_not_delivered_comes_back(make_kept: MakeKept) -> None:
    kept = make_kept()
    kept.fixture.send([LARGE[0]])
    kept.bucket.is_away = True
    consumer = kept.fixture.consumer(credit=1)
    assert [one.payloads for one in consumer.take_all()] in ([[]], [])
    kept.fixture.send([b"small"])
    assert [b"small"] in [one.payloads for one in consumer.take_all()]


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_payload_that_is_lost_is_named_and_stays(
    make_kept: MakeKept, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept = make_kept(max_attempts=1)
    kept.fixture.send([LARGE[1], b"small"])
    [path] = kept.bucket.files
    content = path.read_bytes()
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-1] + b"!")
    consumer = kept.fixture.consumer()
    assert [payload for one in consumer.take_all() for payload in one.payloads] == [b"small"]
    word = "is missing from" if harm == "missing" else "is not what was stored"
    assert [record for record in caplog.records if word in record.getMessage()]
    lost, other = sorted(kept.fixture.peek(), key=lambda row: row["payload"] is not None)
    assert (lost["payload"], other["payload"]) == (None, b"small")
    assert word in lost["unread"]
    assert other["unread"] is None
    path.write_bytes(content)  # somebody put it back
    kept.fixture.advance(DAMAGED_MS)
    assert LARGE[1] in [payload for one in consumer.take_all() for payload in one.payloads]
    assert kept.fixture.broker.payloads.counts.damaged >= 2


def test_a_payload_goes_when_its_message_is_done_and_not_before(make_kept: MakeKept) -> None:
    kept = make_kept(subscriptions={"second": {}})
    kept.fixture.send(LARGE)
    assert kept.take() == LARGE
    kept.clean()
    assert kept.stored == len(LARGE)  # the second still has them
    assert kept.take(f"{TOPIC}@second") == LARGE
    kept.fixture.settle_down()
    kept.collector.delete_doomed()  # a consumer that is late may be reading
    assert kept.stored == len(LARGE)
    kept.fixture.advance(STALE_MS)
    counts = kept.fixture.broker.payloads.counts
    until(lambda: counts.deleted == len(LARGE), "the collector deletes them by itself")
    assert kept.stored == 0


def test_who_takes_messages_at_most_once_gets_their_payloads(make_kept: MakeKept) -> None:
    kept = make_kept()
    kept.fixture.send(LARGE)
    consumer = kept.fixture.consumer(auto_ack=True)
    assert [payload for one in consumer.take_all() for payload in one.payloads] == LARGE
    kept.clean()
    assert kept.stored == 0


def test_what_is_live_in_any_way_keeps_its_payload(make_kept: MakeKept) -> None:
    kept = make_kept(retention_ms=3_600_000, max_attempts=1, lease_ms=1_000)
    fixture = kept.fixture
    fixture.send([b"done" * INLINE])
    kept.take()
    begun = fixture.broker.call("begin_transaction", {"topic": TOPIC})
    fixture.send([b"staged" * INLINE], transaction=begun["transaction"])
    fixture.send([b"waits" * INLINE], [fixture.now_ms + 86_400_000])
    fixture.send([b"leased" * INLINE])
    consumer = fixture.consumer()
    assert consumer.take_all()
    assert kept.stored == 4
    kept.clean()
    assert kept.stored == 4
    fixture.cancel([row["id"] for row in fixture.peek(state="scheduled")])
    kept.clean()  # retained are those that were done, not those that were cancelled
    assert kept.stored == 3


def test_dead_letters_have_payloads_of_their_own__and_may_come_back(make_kept: MakeKept) -> None:
    kept = make_kept(max_attempts=1, lease_ms=1_000)
    fixture, dead = kept.fixture, f"{TOPIC}.dead"
    fixture.send(LARGE)
    consumer = fixture.consumer()
    assert consumer.take_all()
    consumer.session.close(release=False)
    fixture.advance(1_000)
    other = fixture.consumer()  # somebody has to look, so that they die
    other.take_all()
    fixture.letters_arrive()
    other.session.close(release=True)
    kept.clean()
    assert kept.stored == len(LARGE)
    assert [row["payload"] for row in fixture.peek(dead)] == LARGE
    path = max(kept.bucket.files)
    content = path.read_bytes()
    path.unlink()
    unread = [row for row in fixture.peek(dead) if row["payload"] is None]
    assert len(unread) == 1
    answer = fixture.broker.call("redrive", {"topic": dead, "ids": [unread[0]["id"]]})
    assert (answer["moved"], answer["left"]) == (0, 1)  # it stays until it can be read
    path.write_bytes(content)
    fixture.broker.call("redrive", {"topic": dead})
    fixture.letters_arrive()
    assert kept.take() == LARGE
    kept.clean()
    assert kept.stored == 0


def test_a_crash_between_payload_and_message_leaves_an_orphan__which_goes(
    on_files: MakeKept,
) -> None:
    kept = on_files()
    kept.fixture.send([LARGE[0]])
    kept.fixture.broker.payloads.put_beside(
        kept.fixture.broker.runtime(TOPIC).payload_owner, LARGE[1]
    ).result(PATIENCE_SECONDS)
    kept.crash()
    kept.collector.collect()  # it is young: somebody may be about to write its message down
    kept.collector.delete_doomed(0)
    assert kept.stored == 2
    kept.clean()
    assert kept.stored == 1
    assert kept.take() == [LARGE[0]]


def test_a_crash_before_a_payload_was_deleted_leaves_an_orphan__which_goes(
    on_files: MakeKept,
) -> None:
    kept = on_files(snapshot_entries=4)
    kept.fixture.send(LARGE)
    consumer = kept.fixture.consumer()
    [got] = consumer.take_all()
    consumer.ack_rows(got.ids[:2], got.attempts[:2])
    kept.crash()
    assert kept.stored == len(LARGE)
    kept.clean()
    assert kept.stored == 1
    kept.fixture.advance(30_000)
    assert kept.take() == [LARGE[2]]


def test_what_compaction_copies_keeps_its_payload(make_kept: MakeKept) -> None:
    kept = make_kept()
    kept.fixture.send(LARGE)
    consumer = kept.fixture.consumer()
    [got] = consumer.take_all()  # so it is known where each payload is

    def copy(core: PartitionCore) -> None:
        copy_rows(core, core.stored, core.views.live_in(0, 1 << 40, 10))

    kept.fixture.broker.runtime(TOPIC).look(0, copy).result(PATIENCE_SECONDS)
    kept.clean()
    assert kept.stored == len(LARGE)
    consumer.settle(SettleOp.NACK, partition=got.partition, lease_id=got.lease_id)
    [again] = consumer.take_all()
    assert again.payloads == LARGE
    consumer.ack(again)
    kept.clean()
    assert kept.stored == 0


def test_messages_have_their_payloads_after_a_restart_and_a_crash(on_files: MakeKept) -> None:
    kept = on_files(snapshot_entries=4)
    sent = [bytes([number]) * 3_000 for number in range(40)]
    for payload in sent:
        kept.fixture.send([payload, b"filler" * 100])
    kept.restart()
    kept.crash()
    found = kept.take()
    assert [payload for payload in found if not payload.startswith(b"filler")] == sent


def test_a_deleted_topic_takes_its_payloads_along(make_kept: MakeKept) -> None:
    kept = make_kept()
    broker = kept.fixture.broker
    broker.create_topic(Topic("other"))
    kept.fixture.send(LARGE, topic="other")
    kept.fixture.send([LARGE[0]])
    broker.delete_topic("other")
    broker.create_topic(Topic("other"))  # another one of that name
    kept.fixture.send([LARGE[1]], topic="other")
    kept.collector.collect()
    kept.collector.delete_doomed(0)
    assert kept.stored == 2
    assert kept.take("other") == [LARGE[1]]


def test_payloads_are_kept_for_backups_as_long_as_the_setting_says(make_kept: MakeKept) -> None:
    kept = make_kept(keep_ms=3_600_000)
    kept.fixture.send(LARGE)
    assert kept.take() == LARGE
    kept.clean()
    kept.clean()
    assert (kept.stored, len(kept.bucket.files)) == (3, 6)  # and when each ended
    kept.fixture.advance(3_600_000)
    kept.clean()
    assert kept.bucket.files == []


def test_others_payloads_in_the_same_bucket_stay(make_kept: MakeKept) -> None:
    kept = make_kept()
    foreign = kept.bucket.root / "0123456789abcdef" / "1-t" / "ff"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"another broker's")
    kept.fixture.send(LARGE)
    kept.take()
    kept.clean()
    assert kept.bucket.files == [foreign]


def test_limits_of_bytes_count_the_payloads__and_replay_agrees(on_files: MakeKept) -> None:
    kept = on_files(max_backlog_bytes=300_000)
    kept.fixture.send([LARGE[2], b"small"])
    core = kept.fixture.broker.runtime(TOPIC).partitions[0].core
    assert core.backlog.byte_count == len(LARGE[2]) + 5
    assert isinstance(kept.fixture.send([LARGE[2]]).error, ResourceExhausted)
    look = kept.fixture.broker.runtime(TOPIC).look
    before = look(0, lambda core: core.live()).result(PATIENCE_SECONDS)
    kept.crash()
    look = kept.fixture.broker.runtime(TOPIC).look
    assert look(0, lambda core: core.live()).result(PATIENCE_SECONDS) == before
    assert before.byte_count == len(LARGE[2]) + 5


def test_a_nack_gives_the_same_payload_again(make_kept: MakeKept) -> None:
    kept = make_kept()
    kept.fixture.send([LARGE[2]])
    consumer = kept.fixture.consumer()
    [got] = consumer.take_all()
    consumer.settle(SettleOp.NACK, partition=got.partition, lease_id=got.lease_id)
    assert [one.payloads for one in consumer.take_all()] == [[LARGE[2]]]
