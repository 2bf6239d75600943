"""Rule 10: a repeated (producer, batch number) gets the first answer."""

import pytest

from dejaqueue.errors import BadRequest
from tests.rules.conftest import MakeBroker


def test_a_repeated_batch_is_not_sent_again(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=3)
    first = broker.send([b"a", b"b"], producer="p", number=1)
    again = broker.send([b"a", b"b"], producer="p", number=1)
    assert again.all_ids().tolist() == first.all_ids().tolist()
    other = broker.send([b"c"], producer="p", number=2)
    assert other.first_id != first.first_id
    consumer = broker.consumer()
    assert sorted(consumer.payloads()) == [b"a", b"b", b"c"]


def test_it_is_remembered_over_a_restart(on_files: MakeBroker) -> None:
    broker = on_files()
    first = broker.send([b"a"], producer="p", number=1)
    broker.restart()
    again = broker.send([b"a"], producer="p", number=1)
    assert again.first_id == first.first_id
    assert broker.consumer().payloads() == [b"a"]


def test_the_first_answer_holds_refused_rows_too(make_broker: MakeBroker) -> None:
    broker = make_broker()
    due = broker.now_ms + 1_000
    broker.send([b"x"], [due], keys=["k"])
    first = broker.send([b"a", b"b"], [due, due], keys=["k", "l"], producer="p")
    again = broker.send([b"a", b"b"], [due, due], keys=["k", "l"], producer="p")
    assert first.all_statuses().tolist() == again.all_statuses().tolist() == [4, 0]
    assert first.all_ids().tolist() == again.all_ids().tolist()


@pytest.mark.one_broker("shards refuse their own rows")
@pytest.mark.parametrize("partitions", [1, 2])
def test_another_batch_with_the_same_number_is_refused(
    make_broker: MakeBroker, partitions: int
) -> None:
    """It was never answered, and the partition was read again each time."""
    broker = make_broker(partitions=partitions)
    keys = [f"k{number}" for number in range(8)]
    assert broker.send([b"x"] * 8, keys=keys, producer="p", number=7).error is None
    refused = broker.send([b"x"] * 7, keys=keys[1:], producer="p", number=7).error
    assert isinstance(refused, BadRequest)
    assert "sent here with this number before" in str(refused)
    assert broker.send([b"x"] * 8, keys=keys, producer="p", number=7).error is None
