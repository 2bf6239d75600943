"""The designs of topics and of transactions over brokers, tried in every order of events.

With each rule turned back to what was before, what users then saw is found.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.formal import topics, transactions
from tests.formal.explore import Explored, explore


def topic(rules: topics.Rules) -> Explored[topics.State]:
    steps = partial(topics.steps, rules=rules)
    return explore(topics.first(rules), steps, topics.wrong, topics.at_rest)


def transaction(rules: transactions.Rules) -> Explored[transactions.State]:
    steps = partial(transactions.steps, rules=rules)
    return explore(transactions.State(), steps, transactions.wrong, transactions.at_rest)


def test_a_topic_that_is_made_again_keeps_what_is_acknowledged() -> None:
    found = topic(topics.Rules())
    assert (found.wrong, found.way) == ("", ())
    assert found.state_count > 1_000


@pytest.mark.parametrize(
    ("turned_back", "wrong"),
    [
        (
            {"two_steps": False, "compares_words": False, "only_making_makes": False},
            "acknowledged in journals of a topic that is gone",
        ),
        ({"only_making_makes": False}, "acknowledged in journals of a topic that is gone"),
        ({"gone_is_said": False}, "a living topic was called unknown"),
        ({"others_finish": False}, "the topic is making for ever"),
        (
            {"what_is_made_lives": False},
            "others delete what somebody was told is made, and sent to",
        ),
        ({"drops_again": False}, "journals 2 are of no topic"),
    ],
)
def test_what_was_before_loses_it(turned_back: dict[str, bool], wrong: str) -> None:
    found = topic(topics.with_rules(topics.Rules(), **turned_back))
    assert found.wrong == wrong
    assert found.way


def test_a_transaction_over_two_brokers_is_whole_and_known_to_all_in_the_end() -> None:
    found = transaction(transactions.Rules())
    assert (found.wrong, found.way) == ("", ())
    assert found.state_count > 100


@pytest.mark.parametrize(
    ("turned_back", "wrong"),
    [
        (transactions.Rules(over_the_wire=False), "the participant waits for ever"),
        (
            transactions.Rules(over_the_wire=False, elsewhere_is_told=True),
            "the participant waits for ever",
        ),
        (
            transactions.Rules(over_the_wire=False, silence_aborts=True),
            "one half counts, the other does not",
        ),
    ],
)
def test_decisions_that_stay_where_they_are_made_tear_it(
    turned_back: transactions.Rules, wrong: str
) -> None:
    assert transaction(turned_back).wrong.startswith(wrong)


def test_the_shortest_way_to_a_fault_is_told() -> None:
    def steps(number: int) -> object:
        return iter([("add one", number + 1), ("double", number * 2)])

    found = explore(1, steps, lambda number: "it is eight" if number == 8 else "")  # type: ignore[arg-type]
    assert found.way == ("add one", "double", "double")
