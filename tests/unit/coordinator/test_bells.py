"""Bells ring for their prefix, and no more once closed."""

from __future__ import annotations

import threading

import pytest

from dejaqueue.coordinator.bells import Bells, check_fact, check_key
from dejaqueue.coordinator.interface import Watch
from dejaqueue.errors import BadRequest


def test_a_bell_rings_for_its_prefix_and_for_everything() -> None:
    bells = Bells()
    rung: list[str] = []
    bells.add("member/", lambda: rung.append("member"))
    bells.add("", lambda: rung.append("all"))
    bells.ring("member/a")
    bells.ring("owner/a")
    bells.ring()
    assert rung == ["member", "all", "all", "member", "all"]


def test_closing_waits_for_a_bell_that_rings() -> None:
    bells = Bells()
    rings, goes_on = threading.Event(), threading.Event()
    after: list[str] = []

    def bell() -> None:
        rings.set()
        assert goes_on.wait(10)
        after.append("rung")

    watch = bells.add("", bell)
    ringer = threading.Thread(target=bells.ring)
    ringer.start()
    assert rings.wait(10)

    def close() -> None:
        watch.close()
        after.append("closed")

    closer = threading.Thread(target=close)
    closer.start()
    goes_on.set()
    closer.join(10)
    ringer.join(10)
    bells.ring()
    assert after == ["rung", "closed"]


def test_a_bell_may_close_its_own_watch_and_a_failing_one_silences_no_other() -> None:
    bells = Bells()
    watches: list[Watch] = []
    rung: list[str] = []

    def once() -> None:
        rung.append("once")
        watches[0].close()
        raise ValueError("a mistake of the listener")

    watches.append(bells.add("", once))
    bells.add("", lambda: rung.append("always"))
    bells.ring()
    bells.ring()
    assert rung == ["once", "always", "always"]


@pytest.mark.parametrize("key", ["", "ä", "a b", "a" * 501, "a\n"])
def test_keys_that_a_server_would_not_take_are_refused(key: str) -> None:
    with pytest.raises(BadRequest, match="key: "):
        check_key(key)


def test_what_put_is_given_is_checked() -> None:
    check_fact("a/B-1_2.3", b"", 0, 500)
    with pytest.raises(BadRequest, match="value: at most 1048576"):
        check_fact("a", bytes((1 << 20) + 1), None, None)
    with pytest.raises(BadRequest, match="ttl_ms: at least 500"):
        check_fact("a", b"", None, 499)
    with pytest.raises(BadRequest, match="revision: 0 or more"):
        check_fact("a", b"", -1, None)
