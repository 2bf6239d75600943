"""A subscription that is served. What it hands out: rule 19."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.errors import TopicUnknown
from dejaqueue.model import TopicKind
from tests.rules.broker_fixture import BrokerFixture


@pytest.fixture
def fixture() -> Iterator[BrokerFixture]:
    made = BrokerFixture(partitions=2, subscriptions={"a": {"order": "priority"}})
    yield made
    made.stop()


def test_it_is_the_topic_as_one_view(fixture: BrokerFixture) -> None:
    topic = fixture.broker.runtime("t")
    served = topic.subscription("a")
    assert fixture.broker.view("t@a") is served
    assert fixture.broker.view("t") is topic
    assert (served.topic.name, served.topic.kind) == ("t@a", TopicKind.PRIORITY)
    assert served.partitions is topic.partitions
    assert served.view_of(topic.partitions[0]) is served.view_of(topic.partitions[0])
    fixture.send([b"x"])
    looked = [served.look(number, lambda core: core.engine.counts.scheduled) for number in (0, 1)]
    assert sum(look.result(10) for look in looked) == 1
    assert served.change(0, lambda core: core.topic().name).result(10) == "t@a"
    with pytest.raises(TopicUnknown, match="t@b"):
        topic.subscription("b")


def test_it_stays_while_the_topic_changes__and_ends_with_its_setting(
    fixture: BrokerFixture,
) -> None:
    served = fixture.broker.view("t@a")
    fixture.broker.alter_topic("t", {"partitions": 3, "subscriptions": {"a": {"lease_ms": 500}}})
    assert fixture.broker.view("t@a") is served
    assert served.topic.lease_ms == 500
    assert served.look(2, lambda core: core.topic().name).result(10) == "t@a"
    fixture.broker.alter_topic("t", {"subscriptions": {"a": None}})
    with pytest.raises(TopicUnknown):
        fixture.broker.view("t@a")


def test_exclusive_assignment_is_its_own(fixture: BrokerFixture) -> None:
    fixture.broker.alter_topic("t", {"subscriptions": {"a": {"assignment": "exclusive"}}})
    one, two = (fixture.consumer(topic="t@a", consumer=name) for name in ("one", "two"))
    shares = fixture.broker.call("assignments", {"name": "t@a"})
    assert [share["next"] or share["consumer"] for share in shares["partitions"]] == ["one", "two"]
    assert fixture.broker.call("assignments", {"name": "t"})["assignment"] == "shared"
    assert [who["consumer"] for who in fixture.broker.consumers("t@a")] == ["one", "two"]
    assert fixture.broker.consumers("t") == []
    one.session.close(release=True)
    two.session.close(release=True)
