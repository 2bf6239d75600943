"""A slice of the chaos: real brokers in namespaces, every kind of fault once, histories judged.

Covered: all kinds of faults on PostgreSQL and etcd, those of PostgreSQL's disk by themselves; where
DEJAQ_RELIABILITY=all, the negative control. Not covered: JetStream, longer faults, many rounds
(`make chaos`). Left out where network namespaces are not allowed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.__main__ import why_not
from tests.chaos.faults import KINDS

ROOT = Path(__file__).resolve().parents[2]
HERE = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
DISKS = [name for name, kind in KINDS.items() if kind.field == "disk"]
ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"

pytestmark = [pytest.mark.crash, pytest.mark.may_skip, pytest.mark.timeout(2_400)]


def chaos(*words: str) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own, since that moves into a network of its own."""
    command = [sys.executable, "-m", "tests.chaos", *words]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | HERE, capture_output=True, text=True, check=False
    )


def check(backend: str, kinds: str) -> None:
    lacking = why_not([backend], kinds.split(","))
    if lacking:
        pytest.skip(lacking)
    seed = os.environ.get("DEJAQ_CHAOS_SEED", "1")
    words = ["--brief", "--minutes", "0", "--seed", seed]
    done = chaos(*words, "--backend", backend, "--faults", kinds)
    print(done.stdout, done.stderr)
    assert done.returncode == 0


def test_nothing_is_lost_early_or_twice__servers_in_trouble() -> None:
    check("servers", ",".join(one for one in KINDS if one not in DISKS))


def test_nothing_is_lost_early_or_twice__disk_of_the_journals_in_trouble() -> None:
    """Apart, since the file system that spoils disks is slow, and not every machine has it."""
    check("servers", ",".join(DISKS))


@pytest.mark.skipif(not ALL, reason="a minute: make reliability")
def test_brokers_without_a_fence_are_found_out() -> None:
    lacking = why_not(["servers"], ["pause"])
    if lacking:
        pytest.skip(lacking)
    words = ["--backend", "servers", "--minutes", "0.2", "--faults", "pause", "--seed", "4"]
    done = chaos(*words, "--program", "tests.chaos.unfenced")
    print(done.stdout, done.stderr)
    assert done.returncode == 1
    assert "FAULT chaos1: rule" in done.stdout
