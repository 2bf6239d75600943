"""DOQ's generated Go client at a real `dejaq serve`: go/program.go, by protoc from our doq.proto.

It goes through queues, each unary call of messages, and both streams at once. Not covered: what
answers there are for each way to be wrong (test_grpc.py, by the Python client).
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "clients" / "doq"
PARTS = ["queues", "messages", "streams"]


def test_the_go_client_that_protoc_makes_uses_every_call(served: dict[str, Any]) -> None:
    if not (BUILT / "stamp").exists():
        pytest.skip("DOQ's Go client is not built: scripts/install_clients.sh doq")
    fresh = subprocess.run(
        [str(ROOT / "scripts/install_clients.sh"), "doq"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert fresh.returncode == 0, fresh.stdout + fresh.stderr
    ended = subprocess.run(
        [str(BUILT / "program"), served["doq_address"], str(int(PATIENCE_SECONDS))],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines() == PARTS
