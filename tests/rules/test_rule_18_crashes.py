"""Rule 18 through crashes: at every step of its way a letter is neither lost nor doubled.

The steps: dead, durably; on the way; durable in the other topic; buried. A crash is a copy of the
disk at that moment; a restart is graceful and takes a snapshot. Not covered: power cuts within an
append (tests/crash).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dejaqueue.broker.letters.carrier import Arrived
from dejaqueue.broker.letters.parcel import Parcel
from dejaqueue.broker.partition import admission
from dejaqueue.broker.partition.admission import shortage
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.errors import ResourceExhausted
from dejaqueue.journal.interface import Journal
from dejaqueue.model import Topic
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker

DEAD = f"{TOPIC}.dead"
DAY_MS = 86_400_000

Ending = Callable[[BrokerFixture], None]
ENDINGS = [BrokerFixture.crash, BrokerFixture.restart]


def lose_parcels(broker: BrokerFixture) -> None:
    """Parcels are picked up and never seen again."""

    def carry(parcel: Parcel, journal: Journal, arrived: Arrived) -> None:
        broker.arrivals.put(None)

    broker.broker.carrier.carry = carry  # type: ignore[method-assign]


def lose_answers(broker: BrokerFixture) -> None:
    """Parcels arrive, and nobody hears of it."""
    inner = broker.broker.carrier.carry

    def carry(parcel: Parcel, journal: Journal, arrived: Arrived) -> None:
        inner(parcel, journal, lambda rows, error: None)

    broker.broker.carrier.carry = carry  # type: ignore[method-assign]


def die(broker: BrokerFixture, payloads: list[bytes]) -> None:
    broker.send(payloads)
    consumer = broker.consumer()
    assert consumer.payloads() == payloads
    broker.advance(30_000)
    consumer.session.close(release=True)


def payloads(broker: BrokerFixture, topic: str) -> list[bytes]:
    return [row["payload"] for row in broker.peek(topic)]


@pytest.mark.one_broker("looks into a broker")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("away_ms", [0, DAY_MS])
@pytest.mark.parametrize("lose", [lose_parcels, lose_answers])
def test_a_letter_is_there_once__whatever_happened_on_its_way(
    on_files: MakeBroker, ending: Ending, away_ms: int, lose: Callable[[BrokerFixture], None]
) -> None:
    broker = on_files(max_attempts=1)
    broker.broker.create_topic(Topic(DEAD, partitions=2))
    lose(broker)
    die(broker, [b"a", b"b", b"c"])
    broker.arrivals.get(timeout=PATIENCE_SECONDS)
    broker.settle_down()
    assert broker.counts()["dead"] == 3
    ending(broker)
    broker.clock.advance(ms=away_ms)
    assert broker.counts()["dead"] == 3
    broker.letters_arrive()
    assert sorted(payloads(broker, DEAD)) == [b"a", b"b", b"c"]
    assert (broker.counts()["dead"], broker.counts()["buried"]) == (0, 3)


@pytest.mark.one_broker("looks into a broker")
def test_a_letter_that_was_read_already_is_not_sent_again(on_files: MakeBroker) -> None:
    broker = on_files(max_attempts=1)
    broker.broker.create_topic(Topic(DEAD))
    lose_answers(broker)
    die(broker, [b"a"])
    broker.arrivals.get(timeout=PATIENCE_SECONDS)
    consumer = broker.consumer(topic=DEAD)
    [got] = consumer.take_all()
    consumer.ack(got)
    broker.crash()
    assert broker.counts()["dead"] == 1
    broker.letters_arrive()
    assert broker.counts()["dead"] == 0
    assert payloads(broker, DEAD) == []


@pytest.mark.one_broker("looks into a broker")
def test_a_letter_is_known_by_its_key_when_its_sender_is_forgotten(on_files: MakeBroker) -> None:
    broker = on_files(max_attempts=1)
    broker.broker.create_topic(Topic(DEAD))
    lose_answers(broker)
    die(broker, [b"a"])
    broker.arrivals.get(timeout=PATIENCE_SECONDS)
    broker.crash()
    broker.clock.advance(ms=DAY_MS)
    columns = {"payload": [b"another"]}
    forget = broker.write("enqueue", columns, topic=DEAD, producer="somebody")
    assert forget.error is None
    assert broker.counts()["dead"] == 1
    broker.letters_arrive()
    assert sorted(payloads(broker, DEAD)) == [b"a", b"another"]


@pytest.mark.one_broker("looks into a broker")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("lose", [lose_parcels, lose_answers])
def test_a_letter_sent_back_arrives_once(
    on_files: MakeBroker, ending: Ending, lose: Callable[[BrokerFixture], None]
) -> None:
    broker = on_files(max_attempts=1)
    die(broker, [b"a", b"b"])
    broker.letters_arrive()
    lose(broker)
    assert broker.broker.call("redrive", {"topic": DEAD})["moved"] == 2
    broker.arrivals.get(timeout=PATIENCE_SECONDS)
    ending(broker)
    assert broker.counts(DEAD)["dead"] == 2
    broker.letters_arrive()
    assert payloads(broker, TOPIC) == [b"a", b"b"]
    assert payloads(broker, DEAD) == []
    assert broker.counts(DEAD)["dead"] == 0


@pytest.mark.one_broker("looks into a broker")
def test_half_a_parcel_that_arrived_is_not_sent_twice(
    on_files: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = on_files(max_attempts=1)
    broker.broker.create_topic(Topic(DEAD, partitions=4))
    place = broker.broker.runtime(DEAD).partitions[2].core
    refused: list[PartitionCore] = []

    def full_once(asked: PartitionCore, *amount: Any) -> ResourceExhausted | None:
        if asked is not place or refused:
            return shortage(asked, *amount)
        refused.append(asked)
        return ResourceExhausted("full", 1_000)

    monkeypatch.setattr(admission, "shortage", full_once)
    sent = [b"%d" % number for number in range(100)]
    die(broker, sent)
    assert "full" in str(broker.arrivals.get(timeout=PATIENCE_SECONDS))
    broker.settle_down()
    assert broker.counts()["dead"] == 100
    broker.advance(1_000)
    broker.letters_arrive()
    assert sorted(payloads(broker, DEAD)) == sorted(sent)
    assert broker.counts()["dead"] == 0


@pytest.mark.one_broker("looks into a broker")
def test_letters_wait_for_a_topic_that_is_gone(on_files: MakeBroker) -> None:
    broker = on_files(max_attempts=1)
    broker.broker.create_topic(Topic("other"))
    die(broker, [b"a"])
    broker.letters_arrive()
    lose_parcels(broker)
    assert broker.broker.call("redrive", {"topic": DEAD, "to": "other"})["moved"] == 1
    broker.broker.delete_topic("other")
    broker.crash()
    assert broker.counts(DEAD)["dead"] == 1
    while broker.arrivals.get(timeout=PATIENCE_SECONDS) is None:
        pass
    broker.broker.create_topic(Topic("other"))
    broker.counts(DEAD)
    broker.advance(1_000)
    broker.letters_arrive()
    assert payloads(broker, "other") == [b"a"]


@pytest.mark.one_broker("looks into a broker")
def test_replay_is_the_live_state(on_files: MakeBroker) -> None:
    broker = on_files(max_attempts=1, backoff_ms=100)
    lose_parcels(broker)
    die(broker, [b"a", b"b"])
    broker.settle_down()
    live = broker.broker.runtime(TOPIC)
    live_hash = live.look(0, lambda place: place.engine.state_hash()).result(PATIENCE_SECONDS)
    epoch = live.look(0, lambda place: place.engine.epoch).result(PATIENCE_SECONDS)
    broker.crash()
    lose_parcels(broker)
    again = broker.broker.runtime(TOPIC)

    def replayed(place: object) -> int:
        engine = place.engine  # type: ignore[attr-defined]
        engine.state.epoch = epoch  # the restart opened one more
        return int(engine.state_hash())

    assert again.look(0, replayed).result(PATIENCE_SECONDS) == live_hash
