"""The design of transactions over brokers, tried in every order of events; that of topics is in
test_shards.py.

With each rule turned back to what was before, what users then saw is found.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.formal import transactions
from tests.formal.explore import Explored, explore


def transaction(rules: transactions.Rules) -> Explored[transactions.State]:
    steps = partial(transactions.steps, rules=rules)
    return explore(transactions.State(), steps, transactions.wrong, transactions.at_rest)


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
