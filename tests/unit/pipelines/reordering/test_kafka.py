"""Covers: options for Kafka as they are typed."""

from __future__ import annotations

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.reordering.kafka import KafkaSide, parse_options


def test_options_are_names_and_values() -> None:
    assert parse_options(("kafka.a=1", " failOnDataLoss = false=x")) == {
        "kafka.a": "1",
        "failOnDataLoss": "false=x",
    }


@pytest.mark.parametrize("text", ["kafka.a", "=1", "subscribe=t", "Kafka.Bootstrap.Servers=h:1"])
def test_what_is_none_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(BadRequest, match="--kafka-option"):
        parse_options((text,))


def test_a_password_is_not_shown() -> None:
    side = KafkaSide("h:1", {"kafka.ssl.key.password": "secret"})
    assert "secret" not in repr(side)
