"""Rule 3: at most one unexpired lease per message."""

from tests.rules.conftest import MakeBroker


def test_a_leased_message_goes_to_nobody_else__until_the_lease_ends(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(lease_ms=1_000)
    first, second = broker.consumer(), broker.consumer()
    broker.send([b"a"])
    broker.settle_down()
    assert first.payloads() + second.payloads() == [b"a"]
    broker.advance(999)
    assert first.payloads() + second.payloads() == []
    broker.advance(1)
    assert first.payloads() + second.payloads() == [b"a"]


def test_the_lease_lives_on_over_a_restart(on_files: MakeBroker) -> None:
    broker = on_files(lease_ms=1_000)
    broker.send([b"a"])
    assert broker.consumer().payloads() == [b"a"]
    broker.restart()
    consumer = broker.consumer()
    broker.advance(999)
    assert consumer.payloads() == []
    broker.advance(1)
    [got] = consumer.take_all()
    assert got.attempts == [2]
