"""Covers: what becomes of the fact of a membership when its process is killed, or leaves.

Not covered: what the others do then (tests/cluster/test_takeover.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.cluster.witness import Witness
from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.coordinator.registry import open_coordinator
from tests.patience import until

KEY = "members/a"
TTL_MS = 600_000
BROKER = """
import signal, sys
from dejaqueue.cluster.witness import Witness

witness = Witness(sys.argv[1])
witness.start()
for session in sys.argv[2:]:
    witness.saw_join("members/a", session)
print("joined", flush=True)
sys.stdin.read()
witness.close()
print("left", flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the kernel has no pidfd")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'facts.sqlite'}"


@pytest.fixture
def facts(url: str) -> Iterator[Coordinator]:
    opened = open_coordinator(url)
    yield opened
    opened.close()


def start(url: str, *sessions: str) -> subprocess.Popen[str]:
    """A process that has joined as these lives of a broker, one after the other."""
    process = subprocess.Popen(
        [sys.executable, "-c", BROKER, url, *sessions],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "joined\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    """Kill it, as a machine does that is short of memory."""
    process.kill()
    process.communicate()


def test_others_need_not_wait_for_the_lease_of_a_process_that_was_killed(
    url: str, facts: Coordinator
) -> None:
    facts.put(KEY, b'{"session": "second"}', ttl_ms=TTL_MS)
    facts.put("members/b", b'{"session": "second"}', ttl_ms=TTL_MS)
    process = start(url, "first", "second")
    try:
        assert facts.get(KEY) is not None
    finally:
        end(process)
    until(lambda: facts.get(KEY) is None, "the fact is gone")
    assert facts.get("members/b") is not None


def test_what_the_next_life_has_said_stays(url: str, facts: Coordinator) -> None:
    facts.put(KEY, b'{"session": "third"}', ttl_ms=TTL_MS)
    gone = start(url, "first", "second")
    facts.put("members/b", b'{"session": "other"}', ttl_ms=TTL_MS)
    end(gone)
    other = subprocess.Popen(
        [sys.executable, "-c", BROKER.replace("members/a", "members/b"), url, "other"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "joined\n"
    end(other)
    until(lambda: facts.get("members/b") is None, "the later one is gone")
    assert facts.get(KEY) is not None


def test_who_leaves_by_itself_needs_no_witness(url: str, facts: Coordinator) -> None:
    facts.put(KEY, b'{"session": "first"}', ttl_ms=TTL_MS)
    process = start(url, "first")
    witness = _child_of(process.pid)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    assert process.stdout.readline() == "left\n"
    assert not Path(f"/proc/{witness}").exists()
    assert facts.get(KEY) is not None
    process.wait()
    process.stdout.close()


def test_a_witness_outlives_what_ends_the_group_of_its_broker(url: str, facts: Coordinator) -> None:
    facts.put(KEY, b'{"session": "first"}', ttl_ms=TTL_MS)
    process = start(url, "first")
    witness = _child_of(process.pid)
    until(lambda: _ignores(witness, signal.SIGTERM), "it has begun")
    os.kill(witness, signal.SIGTERM)
    end(process)
    until(lambda: facts.get(KEY) is None, "the fact is gone")
    assert facts.list("") == []


def test_a_witness_that_is_dead_is_no_harm(url: str) -> None:
    witness = Witness(url)
    witness.saw_join(KEY, "first")
    witness.start()
    assert witness._process is not None
    witness._process.kill()
    witness._process.wait()
    witness.saw_join(KEY, "second")
    witness.close()
    witness.close()


def _child_of(pid: int) -> int:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return int(text.split()[0])


def _ignores(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) >> (number - 1) & 1)
