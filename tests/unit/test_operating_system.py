"""Covers: a bell for loops by both of its ways; the memory of this process; where brokers run.

Not covered: other systems as a whole (tests/cli/test_other_systems.py); the clock (test_clock.py).
"""

from __future__ import annotations

import os
import select
import sys

import pytest

from dejaqueue import operating_system
from dejaqueue.errors import Refused
from dejaqueue.operating_system import WakeFile


def is_readable(file: WakeFile) -> bool:
    return bool(select.select([file.fileno()], [], [], 0)[0])


@pytest.fixture(params=["eventfd", "pipe"])
def file(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> WakeFile:
    if request.param == "pipe":
        monkeypatch.delattr(os, "eventfd")
    return WakeFile()


def test_a_loop_hears_that_it_was_rung__once_for_many(file: WakeFile) -> None:
    assert not is_readable(file)
    assert not file.hush()
    for _ in range(3):
        file.ring()
    assert is_readable(file)
    assert file.hush()
    assert not is_readable(file)
    file.ring()
    assert file.hush()
    file.close()


def test_a_bell_that_nobody_hears_never_blocks(file: WakeFile) -> None:
    for _ in range(100_000):
        file.ring()
    assert is_readable(file)
    file.close()


def test_a_closed_one_is_silent__and_gives_its_files_back(file: WakeFile) -> None:
    taken = file.fileno()
    file.close()
    file.close()
    file.ring()
    assert file.fileno() == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(taken)


def test_this_process_has_memory__or_nobody_says(monkeypatch: pytest.MonkeyPatch) -> None:
    found = operating_system.resident_bytes()
    assert found is None or 1 << 20 < found < 1 << 40

    def read_text(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr("pathlib.Path.read_text", read_text)
    assert operating_system.resident_bytes() is None


def test_elapsed_time_goes_on() -> None:
    first = operating_system.elapsed_ns()
    assert operating_system.elapsed_ns() >= first


@pytest.mark.parametrize(
    ("system", "name"), [("darwin", "macOS"), ("win32", "Windows"), ("freebsd14", "freebsd14")]
)
def test_brokers_run_on_linux__and_elsewhere_say_what_to_do(
    system: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    assert operating_system.runs_brokers()
    monkeypatch.setattr(sys, "platform", system)
    assert not operating_system.runs_brokers()
    with pytest.raises(Refused, match=f"Linux only, got: {name}; run one in a container"):
        operating_system.refuse_broker("./queue")
