"""Covers: the example applications of FastAPI, Django and Flask: real requests to a real server,
whose tasks a real worker runs, and a relay where there is an outbox.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.cli.ports import free_port
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS, until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    process = BrokerProcess(folder / "data", folder / "log")
    process.start()
    yield process
    process.stop()


class Scene:
    """The programs of one application, in a copy of its folder."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.folder = folder
        self._environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "DEJAQ_URL": broker}
        self._programs: list[subprocess.Popen[bytes]] = []
        self.port = free_port()

    def start(self, *words: str) -> None:
        """Start a program of Python; it is stopped with the scene."""
        log = (self.folder / f"log-{len(self._programs)}").open("wb")
        with log:
            self._programs.append(
                subprocess.Popen(
                    [sys.executable, *words],
                    cwd=self.folder,
                    env=self._environment,
                    stdout=log,
                    stderr=log,
                )
            )

    def run(self, *words: str) -> None:
        """Run a program of Python to its end."""
        subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=self._environment,
            check=True,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
        )

    def ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> tuple[int, Any]:
        """Status and JSON of an answer; waits for a server that is not there yet."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", body or None, method=method
        )
        if kind:
            request.add_header("Content-Type", kind)
        found: list[tuple[int, Any]] = []

        def is_answered() -> bool:
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                    found.append((answer.status, json.load(answer)))
            except urllib.error.HTTPError as error:
                with error:
                    said = error.read()
                is_json = "json" in error.headers.get("Content-Type", "")
                found.append((error.code, json.loads(said) if is_json else said))
            except urllib.error.URLError:
                assert self._programs[0].poll() is None, self.logs()
                return False
            return True

        until(is_answered, f"{method} {path} is answered")
        return found[0]

    def logs(self) -> str:
        """What the programs said."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("log-*")))

    def stop(self, is_orderly: bool = True) -> None:
        """End all; those of DejaQ do so in order."""
        for program in self._programs:
            program.send_signal(signal.SIGTERM if is_orderly else signal.SIGKILL)
        statuses = [program.wait(PATIENCE_SECONDS) for program in self._programs]
        assert not is_orderly or statuses[1:] == [0] * (len(statuses) - 1), self.logs()


@pytest.fixture
def scene_of(broker: BrokerProcess, tmp_path: Path) -> Iterator[Callable[[str], Scene]]:
    made: list[Scene] = []

    def scene(name: str) -> Scene:
        shutil.copytree(ROOT / "examples" / name, tmp_path / name)
        made.append(Scene(tmp_path / name, broker.url))
        return made[0]

    yield scene
    for one in made:
        one.stop(is_orderly=False)


def test_fastapi__reminders_are_planned_moved_cancelled_and_said(
    scene_of: Callable[[str], Scene],
) -> None:
    scene = scene_of("20-fastapi")
    scene.start("-m", "uvicorn", "web:api", "--port", str(scene.port))
    scene.start("-m", "dejaqueue", "worker", "tasks:app")

    def plan(**reminder: Any) -> str:
        body = json.dumps(reminder).encode()
        status, said = scene.ask("POST", "/reminders", body, "application/json")
        assert status == 202
        return f"/reminders/{said['id']}"

    tea = plan(who="alice", what="tea", seconds=3_600)
    cake = plan(who="bob", what="cake", seconds=3_600)
    assert scene.ask("GET", tea) == (200, {"state": "scheduled", "said": None})
    assert scene.ask("PUT", f"{tea}?seconds=0.1") == (200, {"status": "OK"})
    assert scene.ask("DELETE", cake) == (200, {"status": "OK"})
    assert scene.ask("DELETE", cake)[0] == 404
    until(lambda: scene.ask("GET", tea)[1]["state"] == "done", "alice is reminded")
    assert scene.ask("GET", tea)[1]["said"] == "alice, tea!"
    assert scene.ask("GET", cake)[1]["state"] == "gone"
    scene.stop()


def test_flask__a_report_is_asked_for_and_fetched(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("22-flask")
    scene.start("-m", "flask", "--app", "web", "run", "--port", str(scene.port))
    scene.start("-m", "dejaqueue", "worker", "tasks:app")
    status, said = scene.ask("POST", "/reports", b"tea or tea", "text/plain")
    assert status == 202
    until(lambda: scene.ask("GET", said["report"])[0] != 202, "the report is made")
    assert scene.ask("GET", said["report"]) == (200, {"words": {"or": 1, "tea": 2}})
    nothing = scene.ask("POST", "/reports", b" ", "text/plain")[1]["report"]
    until(lambda: scene.ask("GET", nothing)[0] != 202, "it is refused")
    assert scene.ask("GET", nothing) == (422, {"error": "Reject: there is nothing to count"})
    assert scene.ask("GET", "/reports/99999")[0] == 404
    scene.stop()


def test_django__an_order_is_packed_once_it_is_committed(
    scene_of: Callable[[str], Scene],
) -> None:
    scene = scene_of("21-django")
    scene.run("manage.py", "migrate")
    scene.start("manage.py", "runserver", "--noreload", str(scene.port))
    scene.start("manage.py", "dejaq_relay")
    scene.start("-m", "dejaqueue", "worker", "shop.worker:app")
    form = "application/x-www-form-urlencoded"
    assert scene.ask("POST", "/orders", b"item=", form)[0] == 400  # its row is rolled back
    status, said = scene.ask("POST", "/orders", b"item=tea", form)
    assert status == 201
    place = f"/orders/{said['order']}"
    until(lambda: scene.ask("GET", place)[1]["state"] == "packed", "the order is packed")
    assert scene.ask("GET", place) == (200, {"item": "tea", "state": "packed"})
    assert scene.ask("GET", "/orders/99")[0] == 404
    scene.stop()


def test_every_application_is_in_the_list() -> None:
    listed = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    for name in ("20-fastapi", "21-django", "22-flask"):
        assert f"[{name}]({name}/" in listed
