"""The chore of pace: it is there in every partition, and wants no step of its own."""

from __future__ import annotations

from dejaqueue import Client
from dejaqueue.broker.shard.chore import Chore
from dejaqueue.broker.shard.pace_chore import PaceChore
from tests.integration.access_fixture import running


def test_it_wants_no_step() -> None:
    assert PaceChore.next_us is Chore.next_us


def test_what_was_sent_and_acked_is_in_the_stats_at_once__of_each_topic_alone() -> None:
    with running() as site, Client(f"dejaq://127.0.0.1:{site.flight.port}") as client:
        client.create_topic("busy")
        client.create_topic("idle")
        with client.producer("busy") as producer:
            for number in range(40):
                producer.send(str(number))
        with client.consume("busy") as consumer:
            for _ in range(30):
                next(iter(consumer)).ack()
        busy, idle = client.stats("busy"), client.stats().topics["idle"]
        assert busy.enqueued_per_s > busy.acked_per_s > 0
        assert busy.acked_per_s_most >= busy.acked_per_s
        assert busy.lateness_p99_us >= 0
        assert (idle.acked_per_s, idle.lateness_p99_us) == (0, -1)
