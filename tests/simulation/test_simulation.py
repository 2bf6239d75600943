"""A slice of the simulation, and proof that it finds what it is there to find.

`make sim N=2000` runs as many seeds as wanted, `make reliability` plants every bug of mutants.py
and mutants_kinds.py; here are few seeds, and the bugs that the first of them find.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from dejaqueue.broker.partition.inbox import Inbox
from dejaqueue.broker.shard import entries
from dejaqueue.engine.arrays import Words
from tests.checker.history import Operation, Outcome
from tests.simulation.planted import BROKER, VIEWS
from tests.simulation.run import simulate

FOUND_BY = BROKER.found_by()
ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
SLICE = sorted(FOUND_BY, key=lambda name: FOUND_BY[name])[::5]

KEPT = (396, 960, 1369, 1666, 1691, 1703, 10_207, 20_034)
"""Seeds that found something; docs/reliability.md says what."""


@pytest.mark.parametrize("seed", [*range(1, 13), *KEPT])
def test_no_rule_is_broken(seed: int) -> None:
    run = simulate(seed)
    assert [str(fault) for fault in run.faults] == []
    assert run.history.deliveries


def test_a_seed_does_the_same_twice() -> None:
    first, second = simulate(3), simulate(3)
    assert first.fingerprint == second.fingerprint
    assert simulate(4).fingerprint != first.fingerprint


SEEDS_IN_HASTE = {"broker": 3, "cluster": 920_001, "clients": 3, "registers": 3}
"""The cluster's is one that went another way while topics were taken in the order of a set."""


def test_a_seed_does_the_same_in_every_process() -> None:
    """Whatever the hashes of names are there, by which sets are ordered."""
    program = f"""if True:
        import logging
        from tests.simulation.report import KINDS
        logging.getLogger("dejaqueue").setLevel(logging.CRITICAL)
        for kind, seed in {SEEDS_IN_HASTE}.items():
            print(kind, KINDS[kind](seed, haste=4).fingerprint)"""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hashes in ("0", "1")
    ]
    first, second = (child.communicate(timeout=300)[0].splitlines() for child in children)
    assert len(first) == len(SEEDS_IN_HASTE)
    assert first == second


def test_what_is_promised_is_tried() -> None:
    """A simulation in which every transaction is refused finds nothing, and nobody would notice."""
    histories = [simulate(seed).history for seed in (4, 6, 8, 9)]
    tried: dict[str, Sequence[Operation]] = {
        "staged sends": [s for h in histories for s in h.sends if s.transaction],
        "commits": [d for h in histories for d in h.decisions if d.commit],
        "aborts": [d for h in histories for d in h.decisions if not d.commit],
        "acks": [s for h in histories for s in h.settles if s.op == "ack" and not s.staged],
        "acks in transactions": [s for h in histories for s in h.settles if s.staged],
        "moves": [move for h in histories for move in h.moves],
        "cancels": [cancel for h in histories for cancel in h.cancels],
    }
    done = {what: sum(o.outcome is Outcome.OK for o in tried[what]) for what in tried}
    done["firings"] = sum(len(history.firings) for history in histories)
    done["letters"] = sum(len(history.letters) for history in histories)
    done["deliveries again"] = sum(d.attempt > 1 for h in histories for d in h.deliveries)
    assert [what for what, count in done.items() if not count] == [], done


@pytest.mark.parametrize("name", sorted(BROKER.mutants) if ALL else SLICE)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert BROKER.seed_that_finds(name, monkeypatch) is not None, BROKER.missed(name)


def test_there_are_many_planted_bugs_and_each_was_found() -> None:
    assert len(BROKER.mutants) >= 40
    assert set(FOUND_BY) == set(BROKER.mutants)


@pytest.mark.parametrize("seed", range(1, 7))
def test_no_rule_is_broken_with_subscriptions(seed: int) -> None:
    run = simulate(seed, haste=2, views=True)
    assert [str(fault) for fault in run.faults] == []


@pytest.mark.parametrize("name", sorted(VIEWS.mutants) if ALL else sorted(VIEWS.mutants)[::4])
def test_a_bug_planted_in_subscriptions_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert VIEWS.seed_that_finds(name, monkeypatch) is not None, VIEWS.missed(name)


def test_each_bug_planted_in_subscriptions_was_found() -> None:
    assert set(VIEWS.found_by()) == set(VIEWS.mutants)


@pytest.mark.parametrize("seed", [1, 2, 7])
def test_no_bug_of_ours_comes_of_what_rude_clients_send(seed: int) -> None:
    assert [str(fault) for fault in simulate(seed, rude=True).faults] == []


def _unguarded(self: Inbox, requests: object, handle: Callable[[], None]) -> bool:
    handle()
    return True


def _unread(column: pa.StringArray | None, name: str = "") -> Words | None:
    if column is None:
        return None
    encoded = column.dictionary_encode()
    return Words(tuple(encoded.dictionary.to_pylist()), encoded.indices.to_numpy())


@pytest.mark.parametrize("guards", [True, False])
def test_a_bad_row_that_becomes_a_bug_of_ours_is_found(
    guards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: a text that is no UTF-8 broke the step off, and the partition was read again."""
    monkeypatch.setattr(entries, "words", _unread)
    if not guards:
        monkeypatch.setattr(Inbox, "guarded", _unguarded)
    try:
        found = [str(fault) for fault in simulate(1, haste=8, rude=True).faults if fault.rule == 15]
    except AssertionError as noticed:  # by a client that sends nothing bad, and was refused as well
        found = [str(noticed)]
    assert any("InternalError" in text or "rule 15" in text for text in found), found
