"""Rule 1: a reply at acks=all means: on disk. Crashes are in tests/crash."""

from tests.rules.conftest import MakeBroker


def test_what_was_acknowledged_is_there_after_a_restart(on_files: MakeBroker) -> None:
    broker = on_files()
    reply = broker.send([b"a", b"b"], [broker.now_ms + 50, broker.now_ms + 20])
    assert reply.error is None
    hashes = broker.state_hashes()
    broker.restart()
    consumer = broker.consumer()
    broker.advance(60)
    assert consumer.payloads() == [b"b", b"a"]
    assert hashes != broker.state_hashes()


def test_an_ack_is_there_after_a_restart(on_files: MakeBroker) -> None:
    broker = on_files()
    broker.send([b"a"])
    consumer = broker.consumer()
    [got] = consumer.take_all()
    assert consumer.ack(got).error is None
    broker.restart()
    again = broker.consumer()
    broker.advance(3_600_000)
    assert again.payloads() == []


def test_acks_leader_replies_and_acks_none_does_not_wait(on_files: MakeBroker) -> None:
    broker = on_files()
    assert broker.send([b"a"], acks="leader").rows == 1
    consumer = broker.consumer()
    assert consumer.payloads() == [b"a"]
