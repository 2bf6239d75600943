"""Covers: `dejaq worker` as a command: what it is told, what it says, how it ends.

Not covered: what its processes do (tests/unit/tasks/worker, tests/integration/test_workers.py).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.flight.server import FlightServer
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.patience import PATIENCE_SECONDS, until

APPLICATION = """
import os
from dejaqueue.tasks import Tasks
app = Tasks(os.environ["TASKS_URL"])

@app.task(name="double", result=600)
def double(n: int) -> int:
    return FACTOR * n

FACTOR = 2
"""


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "dejaqueue", "worker", *words]


@pytest.mark.parametrize("words", [["nowhere:app"], ["json"], ["json:loads"]])
def test_what_is_no_application_is_a_wrong_call(words: list[str]) -> None:
    ended = subprocess.run(
        command(*words), capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert ended.returncode == 2
    assert "MODULE:NAME of a dejaqueue.tasks.Tasks" in ended.stderr


def test_it_serves_its_health_reloads_and_ends_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = FlightServer(broker)
    server.start()
    source = tmp_path / "program.py"
    source.write_text(APPLICATION)
    log = tmp_path / "log"
    environment = os.environ | {"TASKS_URL": f"dejaq://127.0.0.1:{server.port}"}
    with log.open("wb") as stderr:
        worker = subprocess.Popen(
            command(
                "program:app", "-c", "2", "--pool", "processes", "--reload", "--health-port", "0"
            ),
            cwd=tmp_path,
            env=environment,
            stderr=stderr,
        )
    try:
        until(lambda: "health at port" in log.read_text(), "it says where its health is")
        found = re.search(r"health at port (\d+)", log.read_text())
        assert found is not None
        monkeypatch.setenv("TASKS_URL", environment["TASKS_URL"])
        # A connection each: one that idles is closed by the worker, perhaps as it is used again.
        no_reuse = {"connection": "close"}
        with httpx.Client(
            base_url=f"http://127.0.0.1:{found[1]}", timeout=60, headers=no_reuse
        ) as http:
            until(lambda: http.get("/readyz").status_code == 200, "two processes take tasks")
            names: dict[str, object] = {"__name__": "program"}
            exec(APPLICATION, names)
            double = names["double"]
            assert double.send(4).result(PATIENCE_SECONDS) == 8  # type: ignore[attr-defined]
            source.write_text(APPLICATION.replace("FACTOR = 2", "FACTOR = 3"))
            text = "dejaq_worker_processes_replaced_total 2"
            until(lambda: text in http.get("/metrics").text, "both run what was saved")
            until(lambda: http.get("/readyz").status_code == 200)
            assert double.send(4).result(PATIENCE_SECONDS) == 12  # type: ignore[attr-defined]
        names["app"].close()  # type: ignore[attr-defined]
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_SECONDS) == 0
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
        server.stop()
        broker.stop()
