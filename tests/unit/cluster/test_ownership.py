from __future__ import annotations

from dataclasses import replace

from dejaqueue.cluster.members import Member
from dejaqueue.cluster.ownership import PREFIX, Owner, View, next_owners, owners_of, plan
from dejaqueue.cluster.placement import dealt
from dejaqueue.coordinator.interface import Fact

COUNT = 20
SLOTS = range(COUNT)
A = Member("a", "session-a", "dejaq://a:1", "http://a:2", "0")
B = Member("b", "session-b", "dejaq://b:1", "http://b:2", "0")
OF_A, OF_B = Owner("a", "session-a", 1, 5), Owner("b", "session-b", 1, 5)


def view(*members: Member, owners: dict[int, Owner] | None = None) -> View:
    return View({member.node: member for member in members}, owners or {})


def wanted_by(node: str, *nodes: str) -> set[int]:
    return {slot for slot, wanted in enumerate(dealt(nodes, COUNT)) if wanted == node}


def test_an_owner_is_read_back_from_its_fact() -> None:
    fact = Fact(f"{PREFIX}7", OF_A.to_bytes(), 7)
    assert owners_of([fact]) == {7: replace(OF_A, revision=7)}


def test_who_is_alone_claims_everything_that_nobody_has() -> None:
    assert set(plan("a", "session-a", view(A), COUNT).claim) == set(SLOTS)


def test_of_two_each_claims_its_own() -> None:
    first = plan("a", "session-a", view(A, B), COUNT)
    second = plan("b", "session-b", view(A, B), COUNT)
    assert set(first.claim) == wanted_by("a", "a", "b") == set(second.drop)
    assert set(second.claim) == wanted_by("b", "a", "b") == set(first.drop)


def test_a_slot_with_a_living_owner_is_never_claimed() -> None:
    owners = dict.fromkeys(SLOTS, OF_B)
    found = plan("a", "session-a", view(A, B, owners=owners), COUNT)
    assert found.claim == found.keep == found.hand_over == []


def test_who_has_what_another_should_have_hands_it_over() -> None:
    owners = dict.fromkeys(SLOTS, OF_A)
    found = plan("a", "session-a", view(A, B, owners=owners), COUNT)
    assert set(found.hand_over) == wanted_by("b", "a", "b")
    assert set(found.keep) == wanted_by("a", "a", "b")


def test_what_a_dead_broker_had_is_claimed() -> None:
    owners = dict.fromkeys(SLOTS, OF_B)
    assert set(plan("a", "session-a", view(A, owners=owners), COUNT).claim) == set(SLOTS)


def test_a_broker_that_was_started_anew_is_another_one() -> None:
    again = replace(B, session="session-b2")
    seen = view(A, again, owners=dict.fromkeys(SLOTS, OF_B))
    assert seen.living_owner(0) is None
    assert set(plan("b", "session-b2", seen, COUNT).claim) == wanted_by("b", "a", "b")


def test_who_leaves_hands_everything_over_to_who_stays() -> None:
    leaving = replace(A, leaving=True)
    seen = view(leaving, B, owners=dict.fromkeys(SLOTS, OF_A))
    assert set(plan("a", "session-a", seen, COUNT).hand_over) == set(SLOTS)


def test_the_last_one_that_leaves_keeps_what_it_has() -> None:
    seen = view(replace(A, leaving=True), owners=dict.fromkeys(SLOTS, OF_A))
    assert set(plan("a", "session-a", seen, COUNT).keep) == set(SLOTS)


def test_each_slot_is_in_one_list() -> None:
    owners = {0: OF_A, 1: OF_B, 2: Owner("", "", 3, 9), 3: Owner("c", "gone", 1, 2)}
    found = plan("a", "session-a", view(A, B, owners=owners), COUNT)
    together = [*found.keep, *found.claim, *found.hand_over, *found.drop]
    assert sorted(together) == sorted(SLOTS)


def test_whose_clock_is_apart_claims_nothing_and_keeps_what_it_has() -> None:
    apart = replace(B, apart=True)
    assert plan("b", "session-b", view(A, apart), COUNT).claim == []
    assert set(plan("a", "session-a", view(A, apart), COUNT).claim) == set(SLOTS)
    owners = dict.fromkeys(wanted_by("b", "a", "b"), OF_B)
    found = plan("b", "session-b", view(A, apart, owners=owners), COUNT)
    assert (set(found.keep), found.claim, found.hand_over) == (set(owners), [], [])
    owners = dict.fromkeys(SLOTS, OF_A)
    assert set(plan("a", "session-a", view(A, apart, owners=owners), COUNT).keep) == set(SLOTS)


def test_who_compares_its_clock_claims_nothing_and_is_given_nothing() -> None:
    comes = replace(B, comparing=True)
    assert plan("b", "session-b", view(A, comes), COUNT).claim == []
    owners = dict.fromkeys(SLOTS, OF_A)
    assert set(plan("a", "session-a", view(A, comes, owners=owners), COUNT).keep) == set(SLOTS)


def test_whose_clock_is_far_apart_hands_everything_over() -> None:
    far = replace(B, apart=True, leaving=True)
    owners = dict.fromkeys(SLOTS, OF_B)
    assert set(plan("b", "session-b", view(A, far, owners=owners), COUNT).hand_over) == set(SLOTS)


# --- all brokers that there will be are known -----------------------------------------------------

PLANNED = ("a", "b")


def test_until_all_have_come_nobody_takes_what_is_another_ones() -> None:
    mine = set(range(0, COUNT, 2))
    found = plan("a", "session-a", view(A), COUNT, planned=PLANNED, is_complete=False)
    assert set(found.claim) == mine
    found = plan("a", "session-a", view(A), COUNT, planned=PLANNED)
    assert set(found.claim) == set(SLOTS)


def test_one_that_is_just_about_to_take_is_not_forestalled__and_does_not_yet() -> None:
    early = replace(B, comparing=True)
    assert set(plan("a", "session-a", view(A, early), COUNT, planned=PLANNED).claim) == set(
        range(0, COUNT, 2)
    )
    assert plan("b", "session-b", view(A, early), COUNT, planned=PLANNED).claim == []


def test_one_that_is_back_gets_its_own_again() -> None:
    owners = dict.fromkeys(SLOTS, OF_A)
    found = plan("a", "session-a", view(A, B, owners=owners), COUNT, planned=PLANNED)
    assert set(found.hand_over) == set(range(1, COUNT, 2))


def test_the_next_owner_is_who_the_plan_hands_it_over_to() -> None:
    owners = dict.fromkeys(SLOTS, OF_A)
    seen = view(A, B, owners=owners)
    found = next_owners("a", seen, COUNT)
    assert set(found) == set(plan("a", "session-a", seen, COUNT).hand_over)
    assert set(found.values()) == {B.url}


def test_the_next_owners_of_what_a_leaving_broker_has_are_all_others_that_take() -> None:
    other = replace(B, node="c", session="session-c", url="dejaq://c:1")
    away = replace(B, node="d", session="session-d", url="dejaq://d:1", apart=True)
    found = next_owners("a", view(A, B, other, away), COUNT, leaves=True)
    urls = {"b": B.url, "c": other.url}
    assert found == {slot: urls[node] for slot, node in enumerate(dealt(urls, COUNT))}
    assert next_owners("a", view(A, away), COUNT, leaves=True) == {}
