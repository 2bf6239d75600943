"""Settings of a queue and of its topic say the same."""

from __future__ import annotations

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.http.doq.shapes import DoqSettings
from dejaqueue.http.doq.topics import changes_of, settings_of, topic_of
from dejaqueue.model import Topic, TopicKind


@pytest.mark.parametrize("strategy", ["ROUND_ROBIN", "WEIGHTED"])
def test_what_was_asked_for_can_be_read_from_the_topic(strategy: str) -> None:
    asked = DoqSettings(strategy=strategy.lower(), max_unacked=3, ack_timeout=90)
    topic = topic_of("q", "fair", asked)
    again = Topic.from_dict(topic.to_dict())
    assert settings_of(again) == {"strategy": strategy, "max_unacked": 3, "ack_timeout": 90}


def test_a_delayed_queue_has_a_timeout_alone() -> None:
    topic = topic_of("q", "delayed", DoqSettings())
    assert settings_of(topic) == {"ack_timeout": 1_800}
    assert settings_of(Topic("q", lease_ms=1_001)) == {"ack_timeout": 2}


def test_weights_that_were_given_stay_while_it_is_weighted() -> None:
    weighted = DoqSettings(strategy="WEIGHTED")
    assert changes_of(TopicKind.FAIR, weighted, {"gold": 2})["weights"] == {"gold": 2}
    assert changes_of(TopicKind.FAIR, DoqSettings(), {"gold": 2}) == {}, "nothing was named"
    in_turn = DoqSettings(strategy="ROUND_ROBIN")
    assert changes_of(TopicKind.FAIR, in_turn, {"gold": 2}) == {"weights": {}}


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(BadRequest, match="strategy"):
        topic_of("q", "fair", DoqSettings(strategy="best"))
