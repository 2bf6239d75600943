"""A server of the wire, and a supervisor with real processes on a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dejaqueue
from dejaqueue.broker.broker import Broker
from dejaqueue.flight.server import FlightServer
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.tasks import Tasks
from dejaqueue.tasks.worker.supervisor import Supervisor, WorkerOptions
from dejaqueue.tasks.worker.worker_process import ProcessOptions
from tests.patience import PATIENCE_SECONDS

APPLICATION = "tests.unit.tasks.worker.applications"
ROOT = Path(dejaqueue.__file__).parents[2]


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tasks]:
    """The application of applications.py, with a broker behind it."""
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = FlightServer(broker)
    server.start()
    url = f"dejaq://127.0.0.1:{server.port}"
    monkeypatch.setenv("TASKS_URL", url)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    from tests.unit.tasks.worker import applications

    app = applications.app
    monkeypatch.setattr(app, "url", url)
    app._created.clear()
    try:
        with app:
            yield app
    finally:
        server.stop()
        broker.stop()


def process_options(pool: str = "threads", concurrency: int = 2) -> ProcessOptions:
    log = {"level": "info", "format": "text"}
    return ProcessOptions(f"{APPLICATION}:app", "", pool, concurrency, 16, 5_000, (), log)


@contextmanager
def supervised(options: WorkerOptions, app: Tasks) -> Iterator[Supervisor]:
    """A supervisor at work; stopped with the block."""
    # With a client of its own, as it closes it.
    own = Tasks(app.url, name=app.name)
    own._tasks = app._tasks
    supervisor = Supervisor(own, options)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()
        thread.join(PATIENCE_SECONDS)
        if thread.is_alive():
            supervisor.stop()
            thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
