"""200 clients that wait over HTTP, and a consumer that must not feel them.

Covered: nobody fails, nothing is early, and lateness stays far below what a person would notice,
on any machine that runs tests. How late exactly is a question of the bench: `python -m bench
pollers`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dejaqueue import Client
from dejaqueue.clock import SystemClock
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
POLLERS = 200
MESSAGES, AHEAD_MS, APART_MS = 1_000, 5_000, 2
P99_MS_MAX = 500
"""Counted from the moment the consumer was there to be late."""


def run(*arguments: object) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )


@pytest.fixture
def where() -> Iterator[dict[str, Any]]:
    broker = run("-m", "dejaqueue", "serve", "--data", "memory:", "--port", 0, "--json")
    assert broker.stdout is not None
    yield json.loads(broker.stdout.readline())
    broker.terminate()
    broker.communicate(timeout=PATIENCE_SECONDS)


@pytest.mark.timing
def test_those_who_wait_over_http_make_nobody_late(where: dict[str, Any]) -> None:
    clock = SystemClock()
    with Client(where["url"]) as client:
        client.create_topic("waited-for")
        client.create_topic("steady")
        pollers = run("-m", "bench.pollers", where["http_url"], "waited-for", POLLERS)
        assert pollers.stdout is not None
        assert pollers.stdout.readline() == "ready\n"
        now_ms = clock.now_ms() + AHEAD_MS
        dues = [now_ms + row * APART_MS for row in range(MESSAGES)]
        client.send_batch("steady", [{"payload": "a", "due": due} for due in dues])
        client.send_batch("waited-for", [{"payload": "b", "due": due} for due in dues[::5]])
        late_us, began_us = [], 0
        for message in client.consume("steady", max_messages=MESSAGES, idle_ms=20_000):
            now_us = clock.now_us()
            began_us = began_us or now_us
            late_us.append(now_us - max(message.due_ms * 1_000, began_us))
            assert now_us >= message.due_ms * 1_000
            message.ack(wait=False)
        counts = json.loads(pollers.communicate(timeout=PATIENCE_SECONDS)[0])
    assert len(late_us) == MESSAGES
    assert np.percentile(late_us, 99) / 1_000 < P99_MS_MAX
    assert counts["failed"] == 0
    assert counts["messages"] > MESSAGES // 10, "the last of them may be on their way"
