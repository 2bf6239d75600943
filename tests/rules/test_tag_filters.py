"""Consumers with tag filters: each gets what it asked for, in order, at its time; others the rest.

Broker-side: tests/unit/engine/test_ready.py has the index behind it.
"""

from __future__ import annotations

import pytest

from dejaqueue.broker.partition.partition import Partition
from dejaqueue.broker.shard.core import PartitionCore
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import BrokerFixture
from tests.rules.conftest import MakeBroker
from tests.rules.test_browsing import KINDS, send


class Steps:
    """Counts the steps of all partitions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        step = Partition.step

        def counted(place: Partition, *, busy: bool = False) -> int | None:
            self.count += 1
            return step(place, busy=busy)

        monkeypatch.setattr(Partition, "step", counted)

    def during(self, broker: BrokerFixture, ms: int) -> int:
        """How many there are while so much time goes by, one step of it after the other."""
        before = self.count
        for _ in range(ms):
            broker.advance(1)
        return self.count - before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partitions", [1, 2])
def test_filtered_and_unfiltered_consumers_side_by_side(
    make_broker: MakeBroker, kind: str, partitions: int
) -> None:
    broker = make_broker(kind=kind, partitions=partitions)
    for n in range(12):
        tags = [[], ["x"], ["x", "y"], ["y"]][n % 4]
        send(broker, [(f"{n}{''.join(tags)}", 10 + n, "", tags)])
    filtered = broker.consumer(holds=False, tags_any=("x",), tags_none=("y",))
    both = broker.consumer(holds=False, tags_all=("x", "y"))
    broker.advance(100)
    assert sorted(filtered.payloads()) == [b"1x", b"5x", b"9x"]
    assert sorted(both.payloads()) == [b"10xy", b"2xy", b"6xy"]
    rest = broker.consumer(holds=False)
    assert sorted(rest.payloads()) == [b"0", b"11y", b"3y", b"4", b"7y", b"8"]


@pytest.mark.parametrize("kind", KINDS)
def test_filtered_messages_keep_their_order(make_broker: MakeBroker, kind: str) -> None:
    broker = make_broker(kind=kind)
    send(broker, [(f"{n:02}", n, "", ["x"] if n % 3 == 0 else []) for n in range(30)])
    broker.advance(100)
    consumer = broker.consumer(holds=False, credit=0, tags_any=("x",))
    got = []
    for _ in range(4):
        consumer.session.credit(3)
        got += consumer.payloads()
    assert got == [f"{n:02}".encode() for n in range(0, 30, 3)]


@pytest.mark.one_broker("counts the looks of one broker")
@pytest.mark.parametrize("kind", KINDS)
def test_a_filter_that_matches_nothing_rests(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    steps = Steps(monkeypatch)
    broker = make_broker(kind=kind)
    send(broker, [(f"m{n}", 0, "", ["y"]) for n in range(1_000)])
    picky = broker.consumer(holds=False, tags_any=("x",))
    assert picky.payloads() == []
    # Two looks of a moment are two steps each, for `advance` asks twice whether all is done.
    alone = steps.during(broker, 50)
    assert alone <= 50 * 4
    eager = broker.consumer(holds=False, credit=2_000)
    assert len(eager.payloads()) == 1_000
    assert picky.payloads() == []


@pytest.mark.one_broker("counts the looks of one broker")
def test_messages_to_come_that_do_not_match_cost_one_look_each(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    broker = make_broker()
    send(broker, [(f"m{n}", 10 * n, "", ["y"]) for n in range(10)])
    picky = broker.consumer(holds=False, tags_any=("x",))
    broker.settle_down()
    assert steps.during(broker, 200) <= 200 * 3 + 2 * 10
    assert picky.payloads() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_message_that_matches_is_sent_at_its_time(make_broker: MakeBroker, kind: str) -> None:
    broker = make_broker(kind=kind)
    send(broker, [(f"m{n}", n, "", ["y"]) for n in range(100)])
    picky = broker.consumer(holds=False, tags_any=("x",))
    broker.advance(50)
    assert picky.payloads() == []
    send(broker, [("soon", 20, "", ["x"])])
    send(broker, [("now", 0, "", ["x", "y"])])
    assert picky.payloads() == [b"now"]
    broker.advance(19)
    assert picky.payloads() == []
    broker.advance(1)
    assert picky.payloads() == [b"soon"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_that_comes_back_comes_back_to_who_wants_it(
    make_broker: MakeBroker, kind: str
) -> None:
    broker = make_broker(kind=kind, lease_ms=100)
    send(broker, [("a", 0, "", ["y"]), ("b", 0, "", ["x"])])
    picky = broker.consumer(holds=False, tags_any=("x",))
    (got,) = picky.take_all()
    assert got.payloads == [b"b"]
    broker.advance(100)
    (again,) = picky.take_all()
    assert (again.payloads, again.attempts) == ([b"b"], [2])


@pytest.mark.one_broker("has settings of its own")
@pytest.mark.parametrize("kind", KINDS)
def test_filtered_leases_are_the_same_after_a_restart(on_files: MakeBroker, kind: str) -> None:
    broker = on_files(kind=kind, snapshot_entries=1 << 30, snapshot_interval_ms=1 << 40)
    send(broker, [(f"m{n}", n % 7, "", ["x"] if n % 5 == 0 else ["y"]) for n in range(200)])
    broker.advance(10)
    picky = broker.consumer(holds=False, credit=25, tags_any=("x",))
    assert len(picky.payloads()) == 25
    eager = broker.consumer(holds=False, credit=50)
    assert len(eager.payloads()) == 50
    before = broker.state_hashes()
    runtime = broker.broker.runtime("t")

    def replayed(place: PartitionCore) -> str:
        from dejaqueue.broker.shard import entries
        from dejaqueue.engine.engine import Engine

        place.commits.commit_all()
        engine = Engine(place.number)
        for position, _epoch, entry in place.journal.scan(0):
            engine.apply(entries.to_command(entry, position))
        return str(engine.state_hash())

    assert [runtime.look(0, replayed).result(PATIENCE_SECONDS)] == before


def test_a_long_backlog_is_looked_through_piece_by_piece(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejaqueue.engine.ready._PICK_ROWS_MAX", 1_024)
    broker = make_broker()
    rows = [(f"m{n}", 0, "", ["x"] if n >= 19_990 else ["y"]) for n in range(20_000)]
    send(broker, rows)
    picky = broker.consumer(holds=False, tags_any=("x",))
    eager = broker.consumer(holds=False, credit=1)
    assert eager.payloads() == [b"m0"]
    for _ in range(30):
        broker.settle_down()
    assert picky.payloads() == [f"m{n}".encode() for n in range(19_990, 20_000)]
