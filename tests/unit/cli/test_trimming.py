"""When memory is given back, by figures; and that the C library does it, by memory."""

from __future__ import annotations

import subprocess
import sys
import threading

from dejaqueue.cli.trimming import (
    GROWN_BYTES,
    GROWN_FAST_BYTES,
    PAUSE_US,
    Trimmer,
)
from dejaqueue.testing.virtual_clock import VirtualClock

MB = 1 << 20


class Memory:
    """What a process has: in use, and kept for nothing."""

    def __init__(self) -> None:
        self.used, self.kept, self.trims = 100 * MB, 0, 0

    def own(self) -> int:
        return self.used + self.kept

    def trim(self) -> None:
        self.kept = 0
        self.trims += 1


def test_little_is_left_alone() -> None:
    memory = Memory()
    one = Trimmer(memory.own, memory.trim, VirtualClock())
    memory.kept = GROWN_BYTES - 1
    assert not one.look()
    memory.kept += 1
    assert one.look()
    assert (memory.kept, memory.trims) == (0, 1)


def test_what_was_in_use_is_tried_again_while_that_helps() -> None:
    memory, clock = Memory(), VirtualClock()
    one = Trimmer(memory.own, memory.trim, clock)
    memory.used += 3 * GROWN_BYTES
    assert one.look()
    memory.used, memory.kept = 100 * MB, 3 * GROWN_BYTES
    assert not one.look()
    clock.advance(us=PAUSE_US)
    assert one.look()
    assert memory.kept == 0
    clock.advance(us=PAUSE_US)
    assert one.look()
    clock.advance(us=PAUSE_US)
    assert not one.look()


def test_not_again_at_once_but_if_it_grows_fast() -> None:
    memory, clock = Memory(), VirtualClock()
    one = Trimmer(memory.own, memory.trim, clock)
    memory.kept = GROWN_BYTES
    assert one.look()
    memory.kept = GROWN_FAST_BYTES - 1
    assert not one.look()
    memory.kept += 1
    assert one.look()
    memory.kept = GROWN_BYTES
    assert not one.look()
    clock.advance(us=PAUSE_US)
    assert one.look()


def test_what_was_given_up_is_counted_from_below() -> None:
    memory = Memory()
    memory.used = 900 * MB
    one = Trimmer(memory.own, memory.trim, VirtualClock())
    memory.used = 100 * MB
    assert not one.look()
    memory.kept = GROWN_BYTES
    assert one.look()


def test_it_stops_when_told() -> None:
    memory = Memory()
    one = Trimmer(memory.own, memory.trim)
    one.stop()
    one = Trimmer(memory.own, memory.trim)
    one.start()
    one.stop()
    one.stop()
    assert "dejaq-trim" not in {thread.name for thread in threading.enumerate()}


FRESH = """
from dejaqueue.cli.trimming import own_bytes, trimmer

one = trimmer()
assert one is not None, "tests run on glibc"
pieces = [bytes(2_000) for _ in range(100_000)]
kept = pieces[::1_000]
held = own_bytes()
del pieces
assert one.look()
assert own_bytes() < held - (100 << 20), (held, own_bytes())
"""


def test_the_c_library_gives_back() -> None:
    """In a process of its own: this one may have what it needs from tests before."""
    done = subprocess.run(
        [sys.executable, "-c", FRESH], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
