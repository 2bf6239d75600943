"""Covers: what may be made and altered, as every catalogue has it; here with one that is alone."""

from __future__ import annotations

import logging

import pytest

from dejaqueue.broker.topic.lone_catalogue import LoneCatalogue
from dejaqueue.errors import BadRequest, TopicExists, TopicUnknown
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.model import Topic


def test_exist_ok_wants_the_same_settings() -> None:
    catalogue = LoneCatalogue(MemoryStore())
    catalogue.create(Topic("a"), exist_ok=False)
    assert catalogue.create(Topic("a"), exist_ok=True) == Topic("a")
    with pytest.raises(TopicExists, match="topic a exists with another lease_ms"):
        catalogue.create(Topic("a", lease_ms=77), exist_ok=True)
    with pytest.raises(TopicExists, match="topic a exists"):
        catalogue.create(Topic("a"), exist_ok=False)


def test_what_cannot_change_is_refused() -> None:
    catalogue = LoneCatalogue(MemoryStore())
    catalogue.create(Topic("a"), exist_ok=False)
    assert catalogue.alter("a", {"lease_ms": 50}).lease_ms == 50
    with pytest.raises(BadRequest, match="topic.kind: fixed when the topic is made"):
        catalogue.alter("a", {"kind": "fair"})
    with pytest.raises(BadRequest, match="topic.colour: a setting that can change: partitions"):
        catalogue.alter("a", {"colour": "red"})
    with pytest.raises(BadRequest, match="topic.lease_ms: a whole number from 10"):
        catalogue.alter("a", {"lease_ms": 1})


def test_an_unknown_topic() -> None:
    catalogue = LoneCatalogue(MemoryStore())
    for call in (catalogue.get, catalogue.delete):
        with pytest.raises(TopicUnknown, match="'nope'"):
            call("nope")


def test_a_short_lease_is_allowed_and_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "dejaqueue.broker")
    catalogue = LoneCatalogue(MemoryStore())
    catalogue.create(Topic("a", lease_ms=1_000, lease_ahead_ms=1_000), exist_ok=False)
    assert caplog.messages == []
    catalogue.create(Topic("b", lease_ms=999), exist_ok=False)
    catalogue.alter("a", {"lease_ms": 900})
    short, altered, ahead = caplog.messages
    assert short.startswith("topic b: lease_ms is 999: a consumer that stops for a moment")
    assert altered.startswith("topic a: lease_ms is 900: ")
    assert ahead.startswith("topic a: lease_ms is 900, under lease_ahead_ms, 1000: ")
    catalogue.create(Topic("b", lease_ms=999), exist_ok=True)
    assert len(caplog.messages) == 3  # nothing was made
