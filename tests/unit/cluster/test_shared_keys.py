"""The API keys of a cluster: brokers that write at once, one that is cut off, forged documents.

What is real here: the coordinator (SQLite's, on a file, and the one in this process) and threads.
Whole brokers are in tests/cluster/test_keys.py, all interleavings in tests/simulation/cluster.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from dejaqueue import limits
from dejaqueue.access.gate import Gate
from dejaqueue.access.key_ring import PUT_BACK_AGAIN_MS, KeyRing
from dejaqueue.access.seal import Seal
from dejaqueue.clock import SystemClock
from dejaqueue.cluster.shared_keys import PREFIX, SharedKeys
from dejaqueue.coordinator.in_process import ProcessCoordinator, ProcessFacts
from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import JournalDamaged, Refused, Unauthenticated, Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock

LEASE_MS = 5_000
ADMIN = ["admin:*"]
FACT = PREFIX + "keys"
SEAL = Seal("a secret of this cluster")


class Side:
    """One broker's keys."""

    def __init__(
        self, coordinator: Coordinator, clock: VirtualClock | None = None, seal: Seal | None = SEAL
    ) -> None:
        self.coordinator = coordinator
        self.ring = KeyRing(clock or SystemClock())
        self.keys = SharedKeys(coordinator, LEASE_MS, clock, seal)
        self.keys.open(self.ring)
        self.gate = Gate(self.ring)

    def lets_in(self, text: str) -> bool:
        """Whether a key works here."""
        try:
            self.gate.principal(text)
        except (Unauthenticated, Unavailable):
            return False
        return True


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(start_ms=1_000)


@pytest.fixture
def facts(clock: VirtualClock) -> ProcessFacts:
    """Facts that plan nothing: there is no ttl here, and `refresh` is called by hand."""
    return ProcessFacts(clock, at=lambda instant_us, call: None)


@pytest.fixture
def sides(facts: ProcessFacts, clock: VirtualClock) -> list[Side]:
    """Two brokers that know a root."""
    first = Side(facts.open(), clock)
    first.ring.create("root", ADMIN)
    return [first, Side(facts.open(), clock)]


def line(side: Side) -> ProcessCoordinator:
    assert isinstance(side.coordinator, ProcessCoordinator)
    return side.coordinator


@pytest.mark.parametrize("url", ["sqlite:///{}/facts.db", "memory:{}"])
def test_nothing_is_lost_where_two_brokers_write_at_once(url: str, tmp_path: Path) -> None:
    sides = [Side(open_coordinator(url.format(tmp_path))) for _ in range(2)]
    sides[0].ring.create("root", ADMIN)
    old = [sides[0].ring.create(f"old-{n}", ["produce:a"])[1] for n in range(10)]
    sides[1].keys.refresh()
    made: list[str] = []
    begin = threading.Barrier(2)

    def work(number: int) -> None:
        ring = sides[number].ring
        begin.wait()
        for n in range(15):
            made.append(ring.create(f"new-{number}-{n}", ["produce:a"])[1])
            if n < 5:
                ring.revoke(f"old-{5 * number + n}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for side in sides:
        side.keys.refresh()
    late = Side(open_coordinator(url.format(tmp_path)))
    for side in (*sides, late):
        assert [side.lets_in(text) for text in made] == [True] * 30
        assert [side.lets_in(text) for text in old] == [False] * 10
        side.coordinator.close()


def test_of_two_keys_of_one_name_one_is_refused(sides: list[Side]) -> None:
    sides[0].ring.create("shop", ["produce:a"])
    with pytest.raises(Refused, match="shop"):
        sides[1].ring.create("shop", ["produce:a"])  # has not read it yet


def test_two_brokers_do_not_revoke_the_last_two_admin_keys(sides: list[Side]) -> None:
    sides[0].ring.create("second", ADMIN)
    sides[1].keys.refresh()
    sides[0].ring.revoke("root")
    with pytest.raises(Refused, match="last admin key"):
        sides[1].ring.revoke("second")


def test_a_broker_that_is_cut_off_refuses_after_four_fifths_of_the_lease(
    sides: list[Side], clock: VirtualClock
) -> None:
    here, there = sides
    _, text = here.ring.create("shop", ["produce:a"])
    there.keys.refresh()
    read_ms = clock.now_ms()
    line(there).cut()
    here.ring.revoke("shop")
    assert not here.lets_in(text)
    clock.advance(ms=LEASE_MS * 4 // 5 - 1)
    assert there.lets_in(text), "it cannot know yet"
    clock.advance(ms=1)
    with pytest.raises(Unavailable, match="cannot be confirmed"):
        there.gate.principal(text)
    assert clock.now_ms() == read_ms + LEASE_MS * 4 // 5
    with pytest.raises(Unavailable):
        there.keys.refresh()
    line(there).mend()
    there.keys.refresh()
    with pytest.raises(Unauthenticated):
        there.gate.principal(text)


def test_an_open_stream_is_refused_too_where_its_key_cannot_be_confirmed(
    sides: list[Side], clock: VirtualClock
) -> None:
    side = sides[0]
    _, text = side.ring.create("shop", ["produce:a"])
    side.keys.refresh()
    principal = side.gate.principal(text)
    side.gate.check(principal)
    clock.advance(ms=LEASE_MS)
    with pytest.raises(Unavailable):
        side.gate.check(principal)


def test_a_cluster_without_keys_has_none_to_confirm(
    facts: ProcessFacts, clock: VirtualClock
) -> None:
    side = Side(facts.open(), clock)
    clock.advance(ms=2 * LEASE_MS)
    side.gate.check(side.gate.principal(None))


def test_what_is_known_counts_only_when_it_is_in_force(
    sides: list[Side], clock: VirtualClock
) -> None:
    """Who reads the keys anew after a long absence does not believe the old ones meanwhile."""
    here, there = sides
    _, text = here.ring.create("shop", ["produce:a"])
    there.keys.refresh()
    here.ring.revoke("shop")
    clock.advance(ms=LEASE_MS)
    inner, seen = there.ring._merge, []

    def merge(*arguments: object) -> None:
        seen.append(there.lets_in(text))
        inner(*arguments)  # type: ignore[arg-type]

    there.ring._merge = merge  # type: ignore[method-assign,assignment]
    there.keys.refresh()
    assert seen == [False]


def test_a_change_whose_answer_is_lost_is_made_once(sides: list[Side]) -> None:
    here, there = sides
    inner = line(here)._facts.put

    def put(*arguments: object) -> int:
        stored = inner(*arguments)  # type: ignore[arg-type]
        line(here).answers_lost = 1
        return stored

    line(here)._facts.put = put  # type: ignore[method-assign,assignment]
    _, text = here.ring.create("shop", ["produce:a"])
    there.keys.refresh()
    assert there.lets_in(text)


def test_who_does_not_reach_the_coordinator_changes_nothing(sides: list[Side]) -> None:
    line(sides[0]).cut()
    with pytest.raises(Unavailable):
        sides[0].ring.create("shop", ["produce:a"])
    assert [key.name for key in sides[0].ring.all()] == ["root"]


def test_keys_that_are_too_large_for_a_fact_are_refused_by_name(sides: list[Side]) -> None:
    grants = [f"produce:{'x' * 240}.{n}" for n in range(limits.API_KEY_GRANTS_MAX)]
    with pytest.raises(Refused, match=r"keys: brokers .* at most 1048576 bytes, got: \d+"):
        for n in range(100):
            sides[0].ring.create(f"k{n}", grants)


# --- documents that nobody should believe ------------------------------------------------------


def stored(side: Side) -> str:
    fact = side.coordinator.get(FACT)
    assert fact is not None
    return fact.value.decode()


def forged(text: str) -> dict[str, bytes]:
    """What somebody may write who reaches the coordinator and has no secret."""
    values = json.loads(text)
    mine = values["keys"][0] | {"id": "0" * 12, "name": "mine"}
    unsealed = {name: one for name, one in values.items() if name != "seal"}
    return {
        "another key": json.dumps(values | {"keys": [*values["keys"], mine]}).encode(),
        "no seal": json.dumps(unsealed).encode(),
        "version 1": json.dumps(unsealed | {"version": 1}).encode(),
        "sealed by another": json.dumps(Seal("guessed").on(unsealed)).encode(),
        "fewer revoked": json.dumps(values | {"revoked": {}}).encode(),
        "a seal that is no text": json.dumps(values | {"seal": 7}).encode(),
        "no text": b"\xff\xfe",
        "deep": b"[" * 100_000,
        "a list": b"[]",
        "nothing": b"",
    }


KINDS = sorted(forged(json.dumps({"keys": [{}], "version": 2, "revoked": {}, "seal": ""})))


@pytest.mark.parametrize("kind", KINDS)
def test_a_forged_document_is_refused_and_what_was_known_is_put_back(
    kind: str, sides: list[Side], clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = sides
    _, shop = here.ring.create("shop", ["produce:a"])
    _, gone = here.ring.create("gone", ["produce:a"])
    here.ring.revoke("gone")
    there.keys.refresh()
    before = stored(here)
    here.coordinator.put(FACT, forged(before)[kind])
    with pytest.raises(JournalDamaged):
        Side(here.coordinator, clock)
    there.keys.refresh()
    assert there.ring.refused_count == 1
    assert "stay in force" in caplog.text
    assert (there.lets_in(shop), there.lets_in(gone)) == (True, False)
    assert json.loads(stored(here)) == json.loads(before)
    assert [key.name for key in there.ring.all()] == ["root", "shop"]
    here.keys.refresh()
    assert here.ring.refused_count == 0, "it was put back before"


def test_a_document_that_is_gone_opens_nothing(sides: list[Side], clock: VirtualClock) -> None:
    here, there = sides
    here.coordinator.delete(FACT)
    there.keys.refresh()
    assert there.ring.required
    assert Side(here.coordinator, clock).ring.required, "it was put back"


def test_an_older_document_brings_nobody_back(sides: list[Side], clock: VirtualClock) -> None:
    """As it was sealed: from a backup, or kept by somebody for this."""
    here, there = sides
    _, old = here.ring.create("old", ["produce:a"])
    before = stored(here)
    here.ring.revoke("old")
    _, new = here.ring.create("new", ["produce:a"])
    there.keys.refresh()
    here.coordinator.put(FACT, before.encode())
    there.keys.refresh()
    for side in (*sides, Side(here.coordinator, clock)):
        assert (side.lets_in(old), side.lets_in(new)) == (False, True)


def test_two_who_do_not_believe_each_other_store_seldom(
    sides: list[Side], clock: VirtualClock
) -> None:
    here = sides[0]
    before = stored(here).encode()
    here.coordinator.put(FACT, b"{}")
    here.keys.refresh()
    here.coordinator.put(FACT, b"{}")
    here.keys.refresh()
    assert stored(here) == "{}"
    clock.advance(ms=PUT_BACK_AGAIN_MS)
    here.keys.refresh()
    assert stored(here).encode() == before
    assert here.ring.refused_count == 2


def test_keys_that_nobody_can_read_close_a_cluster_that_was_open(
    facts: ProcessFacts, clock: VirtualClock
) -> None:
    side = Side(facts.open(), clock)
    side.coordinator.put(FACT, b'{"version": 3}')
    side.keys.refresh()
    assert side.ring.required
    assert stored(side) == '{"version": 3}', "who wrote it may need it"
    with pytest.raises(Unauthenticated):
        side.gate.principal(None)


def test_a_later_version_is_left_alone(sides: list[Side]) -> None:
    here, there = sides
    later = SEAL.on({"version": 3, "keys": []})
    here.coordinator.put(FACT, json.dumps(later).encode())
    there.keys.refresh()
    assert json.loads(stored(here)) == later
    assert there.ring.required
    with pytest.raises(Refused, match="version 3"):
        there.ring.create("shop", ["produce:a"])


def test_a_cluster_without_a_secret_does_not_strip_a_seal(
    sides: list[Side], clock: VirtualClock
) -> None:
    with pytest.raises(JournalDamaged, match=r"cluster\.secret_file"):
        Side(sides[0].coordinator, clock, seal=None)


def test_keys_are_sealed_anew_where_that_is_asked_for(
    facts: ProcessFacts, clock: VirtualClock
) -> None:
    for before, after in ((None, SEAL), (SEAL, Seal("the next secret")), (SEAL, None)):
        coordinator = facts.open()
        coordinator.delete(FACT)
        old = Side(coordinator, clock, before)
        _, text = old.ring.create("root", ADMIN)
        ring = KeyRing(clock)
        with pytest.raises(JournalDamaged):
            SharedKeys(coordinator, LEASE_MS, clock, after).open(ring)
        SharedKeys(coordinator, LEASE_MS, clock, after, reseals=True).open(ring)
        assert ring.find(text).name == "root"
        assert Side(coordinator, clock, after).lets_in(text)


def test_when_a_key_was_used_at_one_broker_is_told_by_the_others(
    sides: list[Side], clock: VirtualClock
) -> None:
    first, second = sides
    shop, text = first.ring.create("shop", ["produce:a"])
    second.keys.refresh()
    clock.advance(ms=120_000)
    second.keys.refresh()
    assert second.lets_in(text)
    assert shop.id not in first.ring.uses()[1], "it is not stored by the call"
    second.keys.keep_uses()
    assert first.ring.uses() == (1_000, {shop.id: 120_000})
    line(first).cut()
    assert shop.id not in first.ring.uses()[1], "what others know cannot be asked for"
