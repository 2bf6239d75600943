"""The judge finds planted faults of turns, letters, lives, keys and cron entries, and no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.checker.history import Decide, Firing, History, Letter, Outcome, PutEntry
from tests.checker.judge import judge
from tests.checker.test_judge import MS, got, sent, settled


def letter(number: int, origin: int, at_ms: int, reason: str = "lease ended") -> Letter:
    return Letter(number, f"m{origin}", at_ms * MS, reason, 2, "t", origin, at_ms)


def entry(misfire: str = "all") -> PutEntry:
    put = PutEntry(0, name="e", every_ms=1_000, start_ms=1_000, end_ms=4_000, misfire=misfire)
    put.answer(1, Outcome.OK)
    return put


def whole() -> History:
    """A priority topic with letters, lives, a transaction and an entry, without a fault."""
    history = History(kind="priority", max_attempts=2, drained=True, letters_read=True)
    history.healed_us = history.healed_broker_us = 50 * MS
    history.sends = [
        sent(1, priority=1),
        sent(2, priority=2),
        sent(3),  # dies after two attempts
        sent(4, expires_ms=500),  # dies of age
        sent(5, transaction="x", priority=9),
    ]
    history.decisions = [Decide(20 * MS, transaction="x")]
    history.decisions[0].answer(21 * MS, Outcome.OK)
    history.deliveries = [
        got(1, 100, priority=1),
        got(2, 100, priority=2, dispatch=(100, 1)),
        got(5, 100, priority=9, dispatch=(100, 2)),
        got(3, 100, dispatch=(100, 3)),
        got(3, 1_100, attempt=2),
    ]
    history.settles = [settled("ack", 1, 110), settled("ack", 2, 110), settled("ack", 5, 110)]
    history.letters = [
        letter(70, 3, 2_200),
        letter(71, 4, 600, "expired"),
        letter(71, 4, 900, "expired"),
    ]
    history.letters[2].died_ms = 600
    history.entries = [entry()]
    history.firings = [Firing(80 + n, "e", 1_000 * n, 1_000 * n * MS) for n in (1, 2, 3)]
    return history


def fair(counts: dict[str, int], **settings: object) -> History:
    """A dispatch of a fair topic to which each group gives so many, with one of each left over."""
    history = History(kind="fair", drained=True, **settings)  # type: ignore[arg-type]
    number = 0
    for group, count in counts.items():
        for _ in range(count):
            number += 1
            history.sends.append(sent(number, due_ms=10, group=group))
            row = got(number, 100, due_ms=10, group=group, dispatch=(100, number), decided_ms=90)
            history.deliveries.append(row)
        number += 1
        history.sends.append(sent(number, due_ms=10, group=group))
        row = got(number, 400, due_ms=10, group=group, dispatch=(400, number), decided_ms=390)
        history.deliveries.append(row)
    history.settles = [settled("ack", d.id, d.pushed_us // MS + 10) for d in history.deliveries]
    return history


def test_a_history_without_a_fault() -> None:
    assert judge(whole()) == []
    assert judge(fair({"a": 3, "b": 3})) == []
    assert judge(fair({"a": 3, "b": 4})) == []
    assert judge(fair({"a": 6, "b": 2}, weights={"a": 3})) == []


def less_urgent_first(history: History) -> None:
    history.deliveries[0].dispatch = (100, 1)
    history.deliveries[1].dispatch = (100, 0)


def late(history: History) -> None:
    history.deliveries[0].pushed_broker_us += 31_000 * MS
    history.deliveries[0].lease_end_ms += 40_000


def no_letter(history: History) -> None:
    del history.letters[0]


def no_letter_for_an_old_one(history: History) -> None:
    del history.letters[1:]


def two_letters(history: History) -> None:
    history.letters.append(letter(72, 3, 2_300))


def a_letter_of_what_was_acked(history: History) -> None:
    history.letters.append(letter(72, 1, 2_300))


def a_letter_too_early(history: History) -> None:
    history.letters[0].attempts = 1


def a_letter_of_another_topic(history: History) -> None:
    history.letters[0].origin = "other"


def a_letter_that_nobody_sent(history: History) -> None:
    history.letters[0].token = "m99"


def died_of_age_too_young(history: History) -> None:
    history.letters[1].died_ms = 499


def delivered_after_its_life(history: History) -> None:
    history.sends[0].expires_ms = 90
    history.deliveries[0].decided_ms = 90


def delivered_after_its_letter(history: History) -> None:
    history.letters[0].pushed_us = 1_000 * MS


def seen_before_the_commit(history: History) -> None:
    history.decisions[0].called_us = 105 * MS


def seen_though_the_commit_was_refused(history: History) -> None:
    history.decisions[0].outcome = Outcome.REFUSED


def fired_twice(history: History) -> None:
    history.firings.append(replace(history.firings[0], id=99))


def fired_between(history: History) -> None:
    history.firings[0].firing_ms += 1


def fired_after_its_end(history: History) -> None:
    history.firings.append(Firing(99, "e", 4_000, 4_000 * MS))


def did_not_fire(history: History) -> None:
    del history.firings[1]


def the_last_is_missing(history: History) -> None:
    history.entries = [entry("once")]
    del history.firings[2]


def fired_without_an_entry(history: History) -> None:
    history.firings.append(Firing(99, "f", 1_000, 1_000 * MS))


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (less_urgent_first, 7),
        (late, 5),
        (no_letter, 5),
        (no_letter_for_an_old_one, 1),
        (two_letters, 18),
        (a_letter_of_what_was_acked, 6),
        (a_letter_too_early, 18),
        (a_letter_of_another_topic, 18),
        (a_letter_that_nobody_sent, 18),
        (died_of_age_too_young, 18),
        (delivered_after_its_life, 18),
        (delivered_after_its_letter, 6),
        (seen_before_the_commit, 12),
        (seen_though_the_commit_was_refused, 12),
        (fired_twice, 17),
        (fired_between, 17),
        (fired_after_its_end, 17),
        (did_not_fire, 17),
        (the_last_is_missing, 17),
        (fired_without_an_entry, 17),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[History], None], rule: int) -> None:
    history = whole()
    plant(history)
    assert rule in {fault.rule for fault in judge(history)}


@pytest.mark.parametrize(
    "history",
    [
        fair({"a": 5, "b": 1}),
        fair({"a": 1, "b": 5}),
        fair({"a": 3, "b": 3}, weights={"a": 5}),
        fair({"a": 3, "b": 1}, group_in_flight_max=2),
    ],
)
def test_unfair_turns_are_found(history: History) -> None:
    assert {fault.rule for fault in judge(history)} == {8}


def test_a_cap_counts_what_is_leased_only() -> None:
    history = fair({"a": 1, "b": 1}, group_in_flight_max=1)
    assert judge(history) == []
    history.settles = [settled("ack", d.id, d.pushed_us // MS + 310) for d in history.deliveries]
    assert {fault.rule for fault in judge(history)} == {8}


def test_what_was_replaced_is_gone() -> None:
    history = History(drained=True, on_duplicate="replace")
    history.sends = [sent(1, key="k"), sent(2, at_ms=5, key="k")]
    history.deliveries = [got(2, 100)]
    history.settles = [settled("ack", 2, 110)]
    assert judge(history) == []
    history.deliveries.append(got(1, 120))
    history.settles.append(settled("ack", 1, 130))
    assert {fault.rule for fault in judge(history)} == {11}


def test_what_is_leased_is_not_replaced() -> None:
    history = History(drained=True, on_duplicate="replace")
    history.sends = [sent(1, key="k"), sent(2, at_ms=200, key="k", due_ms=300)]
    history.deliveries = [got(1, 100), got(2, 300, due_ms=300)]
    history.settles = [settled("ack", 2, 310)]
    assert {fault.rule for fault in judge(history)} == {11}
    history.settles.append(settled("ack", 1, 150))
    assert judge(history) == []


def test_who_died_does_not_hold_its_key() -> None:
    history = History(drained=True, max_attempts=1, letters_read=True)
    history.sends = [sent(1, key="k", due_ms=10), sent(2, at_ms=2_000, key="k", due_ms=2_000)]
    history.deliveries = [got(1, 10, due_ms=10), got(2, 2_000, due_ms=2_000)]
    history.settles = [settled("ack", 2, 2_100)]
    history.letters = [replace(letter(70, 1, 1_200), attempts=1)]
    assert judge(history) == []
    history.letters.clear()
    history.deliveries[0].attempt = 1
    assert 11 in {fault.rule for fault in judge(history)}
