"""Batches to a topic in shards: which rows go where, and what one reply says of all parts.

Not covered: the rule that chooses the shard (tests/unit/schema), brokers (tests/cluster).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.client.shards.writing import ShardedWriteChannel
from dejaqueue.errors import BadRequest, DejaQError, Elsewhere, Refused, Unavailable
from dejaqueue.model import RowStatus, Topic
from dejaqueue.schema import messages
from dejaqueue.schema.shards import shards_of_texts
from dejaqueue.topic_names import shard_name
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.unit.client.fake_transport import FakeTransport, FakeWrite

SPREAD = 2
TOPIC = Topic("t", partitions=SPREAD, spread=SPREAD)
KEYS = ["a", "b", "c", "d", "e", "f"]


class Bench:
    """A channel to two shards, which the test answers."""

    def __init__(self, stream: WriteStream | None = None) -> None:
        self.transport = FakeTransport()
        self.channel = ShardedWriteChannel(
            stream or WriteStream("t"), TOPIC, self.transport.open_write, lambda: 1_000
        )

    def write(self, shard: int) -> FakeWrite:
        name = shard_name("t", shard, SPREAD)
        [found] = [one for one in self.transport.writes if one.stream.topic == name]
        return found

    def answer_both(self, *answers: Any) -> None:
        for shard, answer in enumerate(answers):
            number, batch, future = self.write(shard).sent[0]
            if isinstance(answer, Unavailable):
                future.set_exception(answer)
            elif isinstance(answer, DejaQError):
                future.set_result(Reply(number, batch.num_rows, error=answer))
            else:
                future.set_result(Reply(number, batch.num_rows, **answer))


def keyed(keys: list[str] | None = None) -> pa.RecordBatch:
    keys = KEYS if keys is None else keys
    payloads = pa.array([key.encode() for key in keys], pa.binary())
    return pa.RecordBatch.from_pydict({"payload": payloads, "key": pa.array(keys, pa.utf8())})


def test_each_row_goes_to_the_shard_of_its_key__under_the_batch_s_own_number() -> None:
    bench = Bench(WriteStream("t", producer="p"))
    bench.channel.send(7, keyed())
    homes = shards_of_texts(KEYS, SPREAD)
    for shard in range(SPREAD):
        write = bench.write(shard)
        assert write.stream.producer == "p"
        [(number, batch, _)] = write.sent
        assert number == 7
        expected = [key for key, home in zip(KEYS, homes, strict=True) if home == shard]
        assert expected
        assert batch["key"].to_pylist() == expected


def test_one_reply_has_ids_and_statuses_in_the_order_of_the_rows() -> None:
    bench = Bench()
    future = bench.channel.send(1, keyed())
    homes = np.array(shards_of_texts(KEYS, SPREAD))
    counts = [int((homes == shard).sum()) for shard in range(SPREAD)]
    duplicate = np.zeros(counts[1], dtype=np.uint8)
    duplicate[0] = RowStatus.DUPLICATE
    bench.answer_both({"first_id": 100}, {"first_id": 200, "statuses": duplicate})
    reply = future.result(0)
    for shard, first in enumerate((100, 200)):
        ids = list(range(first, first + counts[shard]))
        assert reply.all_ids()[homes == shard].tolist() == ids
    assert (reply.number, reply.rows) == (1, len(KEYS))
    assert np.flatnonzero(reply.all_statuses()).tolist() == [homes.tolist().index(1)]


def test_there_is_no_reply_before_every_shard_has_answered() -> None:
    bench = Bench()
    future = bench.channel.send(1, keyed())
    bench.write(0).answer(0)
    assert not future.done()


def test_a_batch_of_one_shard_goes_there_alone() -> None:
    bench = Bench()
    bench.channel.send(1, keyed(["a"]))
    assert len(bench.transport.writes) == 1


def test_what_is_wrong_with_one_row_refuses_all__nothing_is_sent() -> None:
    bench = Bench()
    batch = keyed(["a", "b" * (limits.KEY_BYTES_MAX + 1)])
    reply = bench.channel.send(1, batch).result(0)
    assert isinstance(reply.error, BadRequest)
    assert bench.transport.writes == []


def test_settles_go_by_the_ids_of_their_messages() -> None:
    bench = Bench(WriteStream("t", "ack"))
    ids = [number << limits.SEQUENCE_BITS for number in (1, 0, 1)]
    columns = [pa.array(ids, pa.int64()), pa.array([1, 2, 3], pa.uint16())]
    bench.channel.send(1, pa.RecordBatch.from_arrays(columns, schema=messages.SETTLE))
    sent = [bench.write(shard).sent[0][1]["attempts"].to_pylist() for shard in range(SPREAD)]
    assert sent == [[2], [1, 3]]


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ((Unavailable("gone"), {}), Unavailable),
        ((Elsewhere("moved"), Unavailable("gone")), Unavailable),
        ((Elsewhere("moved"), Elsewhere("moved")), Elsewhere),
    ],
)
def test_a_channel_that_breaks_leaves_the_batch_to_be_sent_again(
    answers: tuple[Any, ...], kind: type[DejaQError]
) -> None:
    bench = Bench()
    future = bench.channel.send(1, keyed())
    bench.answer_both(*answers)
    assert type(future.exception(0)) is kind


def test_elsewhere_of_a_part_is_not_said_of_the_whole() -> None:
    # Elsewhere says that nothing was carried out: not true when another shard has its rows.
    bench = Bench()
    future = bench.channel.send(1, keyed())
    bench.answer_both(Elsewhere("moved"), {})
    error = future.exception(0)
    assert type(error) is Unavailable
    assert "rows of some shards were carried out" in str(error)


def test_rows_that_only_some_shards_refuse_do_not_look_as_if_nothing_was_done() -> None:
    bench = Bench()
    future = bench.channel.send(1, keyed())
    bench.answer_both(BadRequest("payload", "smaller", 9), {})
    assert isinstance(future.result(0).error, Refused)


def test_what_every_shard_refuses_is_said_as_they_say_it() -> None:
    bench = Bench()
    future = bench.channel.send(1, keyed())
    wrong = BadRequest("payload", "smaller", 9)
    bench.answer_both(wrong, wrong)
    assert future.result(0).error is wrong


def test_closing_closes_every_shard_s_channel() -> None:
    bench = Bench()
    bench.channel.send(1, keyed())
    bench.channel.close()
    assert [write.is_closed for write in bench.transport.writes] == [True, True]
