"""Queues made and counted on a broker."""

from __future__ import annotations

import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import Refused
from dejaqueue.http.doq import catalogue
from dejaqueue.http.service import Service
from dejaqueue.model import Topic, TopicKind


def test_one_of_that_type_that_is_there_stays_as_it_is(broker: Broker) -> None:
    first = catalogue.create(broker, Topic("q", lease_ms=5_000))
    assert catalogue.create(broker, Topic("q", lease_ms=9_000)) == first
    with pytest.raises(Refused, match="of the kind timeline"):
        catalogue.create(broker, Topic("q", TopicKind.FAIR))


def test_topics_that_are_gone_are_not_counted(broker: Broker) -> None:
    catalogue.create(broker, Topic("q"))
    service = Service(broker, Gate(), lambda: True)
    found = catalogue.stats_of(service, None, [Topic("q"), Topic("gone")])
    assert list(found) == ["q"]
    assert found["q"]["scheduled"] == 0
