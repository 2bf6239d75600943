"""Names of transactions and lists of participants. Decisions are in tests/rules and tests/crash."""

from __future__ import annotations

import pytest

from dejaqueue import limits
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.transactions import check_participants
from dejaqueue.errors import BadRequest, TopicUnknown, Unavailable
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings

NONCE = "0123456789abcdef" * 2


def test_participants_are_each_named_once() -> None:
    assert check_participants(["t/1", "u/0", "t/1"]) == [("t", 1), ("u", 0)]


@pytest.mark.parametrize(
    "wrong",
    [
        "t/1",
        None,
        [1],
        ["t"],
        ["t/"],
        ["t/-1"],
        ["t/1"] * (limits.TRANSACTION_PARTICIPANTS_MAX + 1),
    ],
)
def test_other_participants_are_refused(wrong: object) -> None:
    with pytest.raises(BadRequest, match="participants"):
        check_participants(wrong)


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
