"""Whatever breaks a step of a partition off, each request it had in hand is answered.

Who waits for an answer that never comes does not try again: a send loop stands still for ever.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from dejaqueue.broker.shard.commit import Commits
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.engine import Engine
from dejaqueue.errors import DejaQError, InternalError, ResourceExhausted
from dejaqueue.wire.frames import Reply
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker

FULL = ResourceExhausted("the disk is full", 50)


def no_commits(patch: pytest.MonkeyPatch, error: Exception) -> None:
    """What is applied cannot be made durable before a key or a look is answered."""

    def commit_all(self: Commits) -> None:
        raise error

    patch.setattr(Commits, "commit_all", commit_all)


def still_serves(broker: BrokerFixture) -> None:
    assert broker.send([b"after"]).error is None
    broker.settle_down()


@pytest.mark.one_broker("looks into a broker")
@pytest.mark.parametrize("error", [FULL, RuntimeError("a bug")])
def test_a_look_is_told(make_broker: MakeBroker, error: Exception) -> None:
    broker = make_broker()
    broker.settle_down()
    with pytest.MonkeyPatch.context() as patch:
        no_commits(patch, error)
        look = broker.broker.runtime(TOPIC).look(0, lambda place: place.position)
        with pytest.raises(DejaQError):
            look.result(PATIENCE_SECONDS)
    still_serves(broker)


@pytest.mark.one_process("looks into a broker")
@pytest.mark.parametrize("error", [FULL, RuntimeError("a bug")])
@pytest.mark.parametrize("op", ["enqueue", "cancel"])
def test_who_names_a_key_is_told(make_broker: MakeBroker, op: str, error: Exception) -> None:
    broker = make_broker()
    broker.send([b"x"], [broker.now_ms + 9_000], ["key"])
    columns = {"key": pa.array(["key"])}
    if op == "enqueue":
        columns |= {"payload": pa.array([b"y"], pa.binary())}
    with pytest.MonkeyPatch.context() as patch:

        def find_in(*_rest: object) -> None:
            raise error

        patch.setattr("dejaqueue.broker.partition.renaming.find_in", find_in)
        patch.setattr("dejaqueue.broker.partition.duplicates.find_in", find_in)
        for _ in range(2):
            told = broker.write(op, columns).error
            assert isinstance(told, ResourceExhausted if error is FULL else InternalError)
    still_serves(broker)


@pytest.mark.one_process("looks into a broker")
def test_a_bug_of_the_engine_is_told_and_undone(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.send([b"before"], [broker.now_ms + 9_000])
    inner = Engine.apply

    def apply(self: Engine, command: object) -> object:
        inner(self, command)  # type: ignore[arg-type]
        raise ValueError("the engine is ahead of the journal now")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "apply", apply)
        told = broker.send([b"never"], [broker.now_ms + 9_000]).error
        assert isinstance(told, InternalError)
    assert broker.counts()["scheduled"] == 1
    still_serves(broker)


@pytest.mark.one_broker("looks into a broker")
def test_a_partition_that_cannot_be_read_for_a_bug_says_so(on_files: MakeBroker) -> None:
    broker = on_files()
    with pytest.MonkeyPatch.context() as patch:

        def read(*_rest: object) -> None:
            raise KeyError("slab")

        patch.setattr("dejaqueue.broker.partition.partition.read_again", read)
        broker.restart()
        assert isinstance(broker.send([b"x"]).error, InternalError)
    still_serves(broker)


@pytest.mark.one_broker("looks into a broker")
def test_a_reply_that_raises_does_not_keep_the_others_waiting(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.settle_down()
    place = broker.broker.runtime(TOPIC).partitions[0]
    answered: list[Reply] = []

    def breaks(_reply: Reply) -> None:
        raise ValueError("a reply must not raise")

    def ask(core: PartitionCore) -> None:
        commits = core.commits
        commits.group.replies += [(breaks, Reply(1)), (answered.append, Reply(2))]
        commits.commit(behind=False)

    with pytest.raises(DejaQError):
        broker.broker.runtime(TOPIC).look(0, ask).result(PATIENCE_SECONDS)
    still_serves(broker)
    [told] = answered
    assert told.number == 2
    assert isinstance(told.error, InternalError)
    assert place.failure is None
