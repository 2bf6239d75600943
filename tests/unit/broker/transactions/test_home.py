"""What a home decides, once. Whole transactions are in tests/rules and tests/cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.broker.transactions import home as module
from dejaqueue.broker.transactions.names import TransactionName, family_of
from dejaqueue.broker.transactions.record import Record
from dejaqueue.engine.commands import Remember
from dejaqueue.errors import Unavailable
from dejaqueue.settings import BrokerSettings

NAME = TransactionName.parse(f"home/0/1000-500-{family_of(NOBODY)}")
ELSEWHERE = Record((("other", 0),))


class Home:
    """A home whose decisions are kept in a dict, as its engine does."""

    number = 0
    settings = BrokerSettings()

    def __init__(self, now_ms: int = 1_200) -> None:
        self.time_ms = now_ms
        self.engine = SimpleNamespace(decisions={})

    def topic(self) -> Any:
        return SimpleNamespace(name="home")

    def now_ms(self) -> int:
        return self.time_ms

    def apply(self, command: Remember) -> None:
        self.engine.decisions[command.transaction] = (command.commit, command.participants)


def test_the_first_decision_stays() -> None:
    home: Any = Home()
    assert module.remember(home, NAME, ELSEWHERE, True).commit
    again = module.remember(home, NAME, ELSEWHERE, False)
    assert (again.commit, again.record.places) == (True, (("other", 0),))
    assert module.recall(home, NAME) is True


def test_nothing_is_committed_once_its_time_is_over() -> None:
    home: Any = Home(now_ms=NAME.until_ms)
    assert not module.remember(home, NAME, ELSEWHERE, True).commit


def test_what_nobody_decided_is_open_until_its_time_is_over_and_aborted_then() -> None:
    home: Any = Home()
    assert module.recall(home, NAME) is None
    home.time_ms = NAME.until_ms
    assert module.recall(home, NAME) is False
    assert not module.remember(home, NAME, ELSEWHERE, True).commit


def test_what_was_begun_in_the_future_is_aborted__when_it_is_asked_for() -> None:
    slack_ms = Home.settings.clock.step_ms_max + Home.settings.clock.apart_ms_max
    home: Any = Home(now_ms=100_000)
    name = TransactionName.parse(f"home/0/{100_000 + slack_ms}-500-{family_of(NOBODY)}")
    assert module.recall(home, name) is None
    home.time_ms -= 1  # the clock that began it is put right
    assert module.recall(home, name) is False


def test_when_all_were_told_nobody_is_told_any_more() -> None:
    home: Any = Home()
    module.remember(home, NAME, ELSEWHERE, True)
    module.complete(home, NAME)
    known = module.known_decision(home, NAME)
    assert known is not None
    assert (known.commit, known.record.places) == (True, ())


def test_an_epoch_is_committed_once_and_the_next_waits_until_all_were_told() -> None:
    home: Any = Home()
    name = module.epochs_of("home", "query", NOBODY)
    first = Record((("other", 0),), family_of(NOBODY, "query", 1), 1, ("a",))
    assert module.remember_epoch(home, name, first, 5_000).commit
    same = module.remember_epoch(home, name, first, 5_000)
    assert (same.commit, same.record.branches) == (True, ("a",))
    second = Record((("other", 0),), family_of(NOBODY, "query", 2), 2, ("b",))
    with pytest.raises(Unavailable, match="epoch 1 is being committed still"):
        module.remember_epoch(home, name, second, 5_000)


def test_epochs_of_another_sender_are_others() -> None:
    names = [module.epochs_of("home", "query", sender) for sender in (NOBODY, Sender("shop"))]
    assert names[0].text != names[1].text
