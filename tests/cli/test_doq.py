"""DOQ's documentation, call by call, with curl against a real process, over a restart.

Covered: paths, bodies and statuses as DOQ's readers type them. The finer points of each call are in
tests/unit/http/doq.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.clock import SystemClock
from tests.patience import PATIENCE_SECONDS

CURL = shutil.which("curl")
SERVE = ("serve", "--data", "kept", "--port", "0", "--json")
pytestmark = pytest.mark.skipif(CURL is None, reason="curl is not installed")


class Server:
    """A running `dejaq serve`, and curl."""

    def __init__(self, path: Path) -> None:
        kept = {name: v for name, v in os.environ.items() if not name.startswith("DEJAQ_")}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "dejaqueue", *SERVE],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=path,
            env=kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdout is not None
        self._url = json.loads(self._process.stdout.readline())["http_url"]

    def stop(self, number: int = signal.SIGTERM) -> None:
        """As an operator stops it, or as a power cut does."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.communicate(timeout=PATIENCE_SECONDS)
        assert self._process.returncode == (0 if number == signal.SIGTERM else -number)

    def curl(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        """Status and JSON of a call."""
        assert CURL is not None
        command = [CURL, "--silent", "--show-error", "--noproxy", "*", "--request", method]
        command += ["--url", f"{self._url}/API/v1{path}", "--max-time", str(PATIENCE_SECONDS)]
        command += ["--header", "Accept: application/json, application/problem+json"]
        command += ["--write-out", "\n%{http_code}"]
        if body is not None:
            command += ["--header", "Content-Type: application/json", "--data", body]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        text, _, status = found.stdout.rpartition("\n")
        return int(status), json.loads(text) if text else None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def server(path: Path) -> Iterator[Server]:
    server = Server(path)
    yield server
    server.stop()


def test_a_delayed_queue_as_its_readme_shows_it(server: Server) -> None:
    queue = "/queues/user_indexing_queue"
    body = '{"name": "user_indexing_queue", "type": "delayed"}'
    status, made = server.curl("POST", "/queues", body)
    assert (status, made["status"], made["type"]) == (200, "CREATED", "delayed")

    body = r'{"content": "{\"user_id\": 1}", "group": "default", "priority": 60}'
    status, sent = server.curl("POST", f"{queue}/messages", body)
    assert (status, sent["status"], sent["priority"]) == (200, "ENQUEUED", 60)
    assert sent["content"] == '{"user_id": 1}'
    message = f"{queue}/messages/{sent['id']}"

    status, changed = server.curl("PUT", f"{message}/priority", '{"priority": 12}')
    assert (status, changed) == (200, {"status": "UPDATED", "id": sent["id"], "priority": 12})
    status, taken = server.curl("GET", f"{queue}/messages")
    assert (status, taken["status"], taken["id"]) == (200, "DEQUEUED", sent["id"])
    assert taken["priority"] == 12
    assert server.curl("GET", f"{queue}/messages?ack=true")[0] == 400

    status, back = server.curl("POST", f"{message}/nack", '{"priority": 5, "metadata": {"n": "1"}}')
    assert (status, back["status"], back["metadata"]) == (200, "UNACKNOWLEDGED", {"n": "1"})
    assert server.curl("GET", message)[1]["status"] == "GOT"
    taken = server.curl("GET", f"{queue}/messages?ack=false")[1]
    assert (taken["id"], taken["priority"], taken["metadata"]) == (sent["id"], 5, {"n": "1"})
    assert server.curl("POST", f"{message}/touch")[1]["status"] == "TOUCHED"
    assert server.curl("POST", f"{message}/ack")[1]["status"] == "ACKNOWLEDGED"
    assert server.curl("POST", f"{message}/ack")[0] == 400
    assert server.curl("DELETE", queue) == (200, {"status": "DELETED"})


def test_a_fair_queue_serves_customers_in_turn(server: Server) -> None:
    body = '{"name": "transcode", "type": "fair", "settings": {"strategy": "ROUND_ROBIN"}}'
    assert server.curl("POST", "/queues", body)[0] == 200
    for content, group in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")):
        sent = f'{{"content": "{content}", "group": "{group}", "priority": 1}}'
        assert server.curl("POST", "/queues/transcode/messages", sent)[0] == 200
    taken = [server.curl("GET", "/queues/transcode/messages?ack=true")[1] for _ in range(4)]
    assert {message["group"] for message in taken[:2]} == {"a", "b"}
    status, problem = server.curl("GET", "/queues/transcode/messages?ack=true")
    assert (status, problem["status"]) == (400, 400)


def test_a_time_as_priority_waits_for_it(server: Server) -> None:
    assert server.curl("POST", "/queues", '{"name": "later", "type": "delayed"}')[0] == 200
    second = SystemClock().now_ms() // 1_000 + 2
    sent = f'{{"content": "x", "priority": {second}}}'
    assert server.curl("POST", "/queues/later/messages", sent)[0] == 200
    until = time.monotonic() + PATIENCE_SECONDS
    while (taken := server.curl("GET", "/queues/later/messages"))[0] == 400:
        assert time.monotonic() < until
    assert (taken[1]["content"], SystemClock().now_ms() >= second * 1_000) == ("x", True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_all_of_it_survives_a_restart(path: Path, number: int) -> None:
    first = Server(path)
    settings = '{"strategy": "WEIGHTED", "max_unacked": 3, "ack_timeout": 600}'
    body = f'{{"name": "fair", "type": "fair", "settings": {settings}}}'
    assert first.curl("POST", "/queues", body)[0] == 200
    assert first.curl("POST", "/queues", '{"name": "q", "type": "delayed"}')[0] == 200
    given = first.curl("POST", "/ids", '{"number": 1}')[1]["ids"][0]
    for content, priority in (("b", 2), ("a", 1), ("c", 3)):
        sent = f'{{"content": "{content}", "priority": {priority}, "metadata": {{"n": "1"}}}}'
        assert first.curl("POST", "/queues/q/messages", sent)[0] == 200
    named = f'{{"content": "d", "priority": 4, "id": "{given}"}}'
    assert first.curl("POST", "/queues/q/messages", named)[1]["id"] == given
    held = first.curl("GET", "/queues/q/messages")[1]
    assert held["content"] == "a"
    queues = first.curl("GET", "/queues")[1]["queues"]
    first.stop(number)

    second = Server(path)
    again = second.curl("GET", "/queues")[1]["queues"]
    for name in ("type", "settings", "ready", "unacked", "total"):
        assert [queue[name] for queue in again] == [queue[name] for queue in queues]
    assert second.curl("GET", f"/queues/q/messages/{held['id']}")[1]["metadata"] == {"n": "1"}
    assert second.curl("POST", f"/queues/q/messages/{held['id']}/ack")[0] == 200
    assert second.curl("POST", "/queues/q/messages", named)[1]["id"] == given, "once is enough"
    taken = [second.curl("GET", "/queues/q/messages?ack=true")[1] for _ in range(3)]
    assert [message["content"] for message in taken] == ["b", "c", "d"]
    assert second.curl("GET", "/queues/q/messages?ack=true")[0] == 400
    second.stop()
