"""A slice of the chaos: real brokers in namespaces, every kind of fault, histories judged.

Covered: all kinds of faults, each once, on PostgreSQL and etcd, some on JetStream; the negative
control. Not covered: longer faults, many rounds (`make chaos`, `make reliability`). Left out where
network namespaces are not allowed.
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
EMBEDDED = "alone,pause,journal"

pytestmark = [pytest.mark.crash, pytest.mark.may_skip, pytest.mark.timeout(240)]


def chaos(*words: str) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own, since that moves into a network of its own."""
    command = [sys.executable, "-m", "tests.chaos", "--brief", *words]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | HERE, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("backend", "kinds", "seconds"), [("servers", ",".join(KINDS), 20), ("embedded", EMBEDDED, 6)]
)
def test_nothing_is_lost_early_or_twice__a_cluster_in_trouble(
    backend: str, kinds: str, seconds: int
) -> None:
    lacking = why_not([backend], kinds.split(","))
    if lacking:
        pytest.skip(lacking)
    minutes = f"{seconds / 60:.3f}"
    done = chaos("--backend", backend, "--minutes", minutes, "--faults", kinds)
    print(done.stdout, done.stderr)
    assert done.returncode == 0


def test_brokers_without_a_fence_are_found_out() -> None:
    lacking = why_not(["servers"], ["pause"])
    if lacking:
        pytest.skip(lacking)
    words = ["--backend", "servers", "--minutes", "0.1", "--faults", "pause", "--seed", "1"]
    done = chaos(*words, "--program", "tests.chaos.unfenced")
    print(done.stdout, done.stderr)
    assert done.returncode == 1
    assert "FAULT chaos-" in done.stdout
