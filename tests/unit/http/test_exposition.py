"""The page: the broker's numbers under the catalogue's names, and nothing besides.

Covered: exact lateness on a clock that stands still, consumers of one name, everything that is
summed. Not covered: a broker process (tests/integration/test_metrics.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dejaqueue.access.gate import Gate
from dejaqueue.access.pages import Pages
from dejaqueue.broker.watching import observation
from dejaqueue.http.catalogue import METRICS
from dejaqueue.http.exposition import Exposition
from dejaqueue.http.requests import RequestCounts
from dejaqueue.http.service import Service
from dejaqueue.model import Topic
from tests.integration.metrics_page import Page
from tests.rules.broker_fixture import BrokerFixture


@pytest.fixture
def fixture() -> Iterator[BrokerFixture]:
    made = BrokerFixture()
    yield made
    made.stop()


def read(fixture: BrokerFixture) -> Page:
    content, _ = Exposition(
        Service(fixture.broker, Gate(), lambda: True), RequestCounts(), Pages()
    ).render("")
    return Page(list(text_string_to_metric_families(content.decode())))


def test_lateness_is_from_due_to_pushed(fixture: BrokerFixture) -> None:
    fixture.send([b"a", b"b"], [fixture.now_ms + 10, fixture.now_ms + 14])
    fixture.advance(15)
    consumer = fixture.consumer()
    assert consumer.payloads() == [b"a", b"b"]
    page = read(fixture)
    assert page.get("dejaq_lateness_seconds_sum") == pytest.approx(0.006)
    assert page.get("dejaq_lateness_seconds_bucket", le="0.001") == 1
    assert page.get("dejaq_lateness_seconds_bucket", le="0.005") == 2


def test_message_that_came_after_its_due_time_is_ready_when_it_came(fixture: BrokerFixture) -> None:
    fixture.send([b"a"], [fixture.now_ms - 60_000])
    fixture.advance(3)
    fixture.consumer().take_all()
    page = read(fixture)
    assert page.get("dejaq_lateness_seconds_sum") == pytest.approx(60.003)
    assert page.get("dejaq_ready_to_delivery_seconds_sum") == pytest.approx(0.003)


def test_misses_are_the_brokers_own_lateness(fixture: BrokerFixture) -> None:
    consumer = fixture.consumer()
    consumer.knows_its_clock()
    fixture.send([b"a", b"b"], [fixture.now_ms + 1_000, fixture.now_ms + 2_000])
    consumer.take_all()
    fixture.advance(997)  # in time: leased ahead
    assert consumer.payloads() == [b"a"]
    assert read(fixture).get("dejaq_lease_ahead_misses_total") == 0
    fixture.advance(1_006)  # the clock jumped over the second one, as if the worker had slept
    assert consumer.payloads() == [b"b"]
    page = read(fixture)
    assert page.get("dejaq_lease_ahead_misses_total") == 1
    assert page.get("dejaq_lateness_seconds_sum") == pytest.approx(0.003)


def test_late_without_a_consumer_that_waited_is_no_miss(fixture: BrokerFixture) -> None:
    fixture.send([b"a", b"b"], [fixture.now_ms + 1_000, fixture.now_ms + 2_000])
    fixture.advance(1_500)
    consumer = fixture.consumer(credit=1)
    consumer.knows_its_clock()
    assert consumer.payloads() == [b"a"]
    fixture.advance(1_000)
    consumer.session.credit(1)
    assert consumer.payloads() == [b"b"]
    page = read(fixture)
    assert page.get("dejaq_lease_ahead_misses_total") == 0
    assert page.get("dejaq_lateness_seconds_count") == 2


def test_consumers_of_one_name_are_one(fixture: BrokerFixture) -> None:
    first = fixture.consumer(consumer="a", credit=5)
    fixture.consumer(consumer="a", credit=7)
    fixture.consumer(consumer="b", credit=1)
    first.knows_its_clock()
    page = read(fixture)
    assert page.get("dejaq_consumers") == 3
    assert page.get("dejaq_consumer_credit_messages", consumer="a") == 12
    assert page.get("dejaq_consumer_clock_uncertainty_seconds", consumer="a") == pytest.approx(1e-5)
    assert not page.all("dejaq_consumer_clock_uncertainty_seconds", consumer="b")


def test_subscriptions_have_metrics_of_their_own(fixture: BrokerFixture) -> None:
    views = {"due": {}, "turns": {"order": "groups"}}
    fixture.broker.create_topic(Topic("s", subscriptions=views))
    fixture.send([b"a", b"b", b"c"], [fixture.now_ms + 10] * 3, topic="s")
    assert read(fixture).get("dejaq_subscription_behind_seconds", subscription="turns") == 0
    fixture.advance(4_010)
    fixture.consumer(topic="s@due", credit=1).take_all()
    page = read(fixture)
    due = {"topic": "s", "kind": "timeline", "subscription": "due"}
    assert page.get("dejaq_subscription_delivered_total", **due) == 1
    assert page.get("dejaq_subscription_messages", state="leased", **due) == 1
    assert page.get("dejaq_subscription_messages", state="scheduled", **due) == 2
    assert page.get("dejaq_subscription_ready", **due) == 2
    assert page.get("dejaq_subscription_behind_seconds", **due) == pytest.approx(4)
    assert page.get("dejaq_subscription_consumers", **due) == 1
    assert page.get("dejaq_subscription_ready", subscription="turns") == 3
    assert not page.all("dejaq_subscription_behind_seconds", subscription="turns")
    assert not page.all("dejaq_subscription_ready", topic="t")  # it has none
    assert page.get("dejaq_delivered_total", topic="s") == 0


def test_consumers_and_topics_too_many_are_summed(
    fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation, "CONSUMERS_SHOWN_MAX", 2)
    monkeypatch.setattr(observation, "TOPICS_SHOWN_MAX", 1)
    for number in range(5):
        fixture.consumer(consumer=f"c{number}", credit=10 + number)
    for name in ("x", "y"):
        fixture.broker.create_topic(Topic(name))
        fixture.send([b"1", b"2"], topic=name)
        fixture.consumer(topic=name, credit=100).take_all()
    page = read(fixture)
    assert page.get("dejaq_consumer_credit_messages", topic="t", consumer="c1") == 11
    assert page.get("dejaq_consumer_credit_messages", topic="t", consumer="(others)") == 39
    assert page.get("dejaq_delivered_total", topic="(others)", kind="") == 4
    assert page.get("dejaq_lateness_seconds_count", topic="(others)", kind="") == 4
    assert page.get("dejaq_consumer_credit_messages", topic="(others)") == 196
    assert page.get("dejaq_topics") == 3


def test_names_are_written_so_that_they_can_be_read_back(fixture: BrokerFixture) -> None:
    name = 'a"b\\c\nd=ü'
    fixture.consumer(consumer=name)
    assert read(fixture).get("dejaq_consumer_credit_messages", consumer=name) == 1_000


def test_everything_shown_is_in_the_catalogue(fixture: BrokerFixture) -> None:
    fixture.send([b"a"])
    fixture.consumer().take_all()
    page = read(fixture)
    shown = {
        name.removesuffix("_total"): kind
        for name, kind in page.types.items()
        if name.startswith("dejaq_")
    }
    assert shown == {name: METRICS[name].type for name in shown}
    for sample, labels in page.samples:
        metric = next((m for m in METRICS.values() if sample.startswith(m.name)), None)
        if metric is not None and sample == metric.shown_name:
            assert {label for label, _ in labels} == set(metric.labels), sample
    assert page.all("process_open_fds")
