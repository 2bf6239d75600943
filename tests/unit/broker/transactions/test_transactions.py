"""Homes of transactions. Names: test_names.py; decisions: tests/rules, tests/crash."""

from __future__ import annotations

import pytest

from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import TopicUnknown, Unavailable
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings

NONCE = "0123456789abcdef" + NOBODY.mark


def test_a_home_that_is_gone_is_named_and_a_stopped_broker_says_so() -> None:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    broker.create_topic(Topic("t"))
    turns = {broker.transactions.begin("t", 1_000)["transaction"] for _ in range(3)}
    assert len(turns) == 3
    for home in ("t/1", "u/0"):
        with pytest.raises(TopicUnknown):
            broker.transactions.decide(f"{home}/1-5-{NONCE}", [], commit=True)
    broker.stop()
    with pytest.raises(Unavailable):
        broker.transactions.begin("t", 1_000)
