"""The gate: who is let in, and for how long a stream may stay open."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import partial

import pytest

from dejaqueue.access.gate import Gate, bearer_of
from dejaqueue.access.key_ring import InMemory, KeyRing
from dejaqueue.access.roles import EVERYBODY
from dejaqueue.clock import SystemClock
from dejaqueue.errors import Unauthenticated, Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(start_ms=1_000)


@pytest.fixture
def gate(clock: VirtualClock) -> Gate:
    return Gate(KeyRing(clock, InMemory()))


def test_everybody_is_let_in_until_there_is_a_key(gate: Gate) -> None:
    assert gate.principal(None) is EVERYBODY
    assert gate.principal("anything") is EVERYBODY
    key, text = gate.keys.create("root", ["admin:*"])
    for wrong in (None, "", "anything"):
        with pytest.raises(Unauthenticated):
            gate.principal(wrong)
    assert gate.principal(text) == key.principal


def test_a_gate_without_keys_is_open() -> None:
    assert Gate().principal(None) is EVERYBODY


def test_open_streams_end_when_their_key_is_revoked(gate: Gate) -> None:
    gate.keys.create("root", ["admin:*"])
    ended: list[str] = []
    admissions = []

    def note(name: str, _: object) -> None:
        ended.append(name)

    for name in ("a", "b"):
        key, _ = gate.keys.create(name, ["consume:x"])
        admissions.append(gate.admit(key.principal, partial(note, name)))
    with admissions[0], admissions[1]:
        admissions[0].check()
        gate.keys.revoke("a")
        assert ended == ["a"]
        with pytest.raises(Unauthenticated):
            admissions[0].check()
        admissions[1].check()
    gate.keys.revoke("b")
    assert ended == ["a"], "a stream that has ended is not told"


def test_a_stream_that_cannot_be_told_does_not_keep_others_open(gate: Gate) -> None:
    gate.keys.create("root", ["admin:*"])
    key, _ = gate.keys.create("a", ["consume:x"])
    ended: list[int] = []

    def fail(number: int, _: object) -> None:
        ended.append(number)
        raise Unavailable("the topic has gone")

    with ExitStack() as stack:
        for number in range(3):
            stack.enter_context(gate.admit(key.principal, partial(fail, number)))
        gate.keys.revoke("a")
        assert sorted(ended) == [0, 1, 2]


def test_the_first_key_ends_streams_that_have_none(gate: Gate) -> None:
    ended: list[Unauthenticated] = []
    with gate.admit(EVERYBODY, ended.append) as admission:
        admission.check()
        gate.keys.create("root", ["admin:*"])
        assert len(ended) == 1
        with pytest.raises(Unauthenticated):
            admission.check()


def test_a_key_that_was_revoked_meanwhile_admits_nothing(gate: Gate) -> None:
    gate.keys.create("root", ["admin:*"])
    key, _ = gate.keys.create("a", ["consume:x"])
    gate.keys.revoke("a")
    ended: list[Unauthenticated] = []
    with gate.admit(key.principal, ended.append):
        assert len(ended) == 1


def test_open_streams_end_when_their_key_ends(gate: Gate, clock: VirtualClock) -> None:
    gate.keys.create("root", ["admin:*"])
    bells = {name: threading.Event() for name in ("early", "late")}
    admissions = []

    def ring(name: str, _: object) -> None:
        bells[name].set()

    for name, ends_ms in (("late", 3_000), ("early", 2_000)):
        key, _ = gate.keys.create(name, ["consume:x"], ends_ms)
        admissions.append(gate.admit(key.principal, partial(ring, name)))
    with admissions[0], admissions[1]:
        clock.advance(ms=999)
        assert not bells["early"].is_set()
        clock.advance(ms=1)
        assert bells["early"].wait(10)
        assert not bells["late"].is_set()
        clock.advance(ms=1_000)
        assert bells["late"].wait(10)


def test_nobody_waits_for_ends_when_no_stream_is_open() -> None:
    keys = KeyRing(SystemClock(), InMemory())
    gate = Gate(keys)
    keys.create("root", ["admin:*"])
    key, _ = keys.create("a", ["consume:x"], SystemClock().now_ms() + 3_600_000)
    with gate.admit(key.principal, lambda _: None):
        watch = gate._watch
        assert watch is not None
    watch.join(10)
    assert not watch.is_alive()


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic abc", None),
        ("abc", None),
        ("", None),
    ],
)
def test_the_key_is_what_stands_behind_bearer(header: str, key: str | None) -> None:
    assert bearer_of(header) == key


def test_a_signature_is_asked_for_once_there_is_a_key() -> None:
    gate = Gate()
    assert gate.signer("any", lambda _: False) is EVERYBODY
    gate.keys.keeps_signing = True
    key, _ = gate.keys.create("root", ["admin:*"])
    assert gate.signer(key.id, lambda _: True) == key.principal
    with pytest.raises(Unauthenticated):
        gate.signer(key.id, lambda _: False)
