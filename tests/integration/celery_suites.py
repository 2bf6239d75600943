"""Run kombu's and Celery's own integration tests on a broker of this tree.

    python -m tests.integration.celery_suites [-k words, and what else pytest takes]

Their tests are not in their wheels: the sources of the versions that are installed are fetched from
the package index and kept in .venv. Who fails is compared with EXPECTED; docs/guides/from-celery.md
says what that means.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.crash.broker_process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".venv" / "suites"
SUITES = {
    "kombu": ("t/integration/test_dejaq.py",),
    "celery": (
        "t/integration/test_tasks.py",
        "t/integration/test_inspect.py",
        "t/integration/test_canvas.py",
    ),
}
EXPECTED = {
    "test_scheduled": "An eta waits at the broker, so no worker has it to tell of.",
    "test_group_or_task_countdown_delays_header": (
        "The broker has kept to the eta, so request.eta, which the test reads, is None."
    ),
    "test_chord_header_id_duplicated_on_rabbitmq_msg_duplication[redis-group-ids]": (
        "It counts in Redis."
    ),
    "test_revoked_by_headers_complex_canvas": (
        "One of 22 parts; Celery marks the test as flaky and tries it three times, we do once."
    ),
}
"""Names of tests that fail, and why."""

KOMBU = """
import os

import kombu
import pytest

import dejaqueue.celery
from .common import (
    BaseEventLoop, BaseExchangeTypes, BaseMessage, BasePriority, BaseTimeToLive, BasicFunctionality,
)

@pytest.fixture()
def connection():
    return kombu.Connection(os.environ["TEST_BROKER"])

@pytest.fixture()
def invalid_connection():
    return kombu.Connection("dejaq://127.0.0.1:1", transport_options={"retry_ms_max": 500})

class test_basic(BasicFunctionality): pass
class test_exchange_types(BaseExchangeTypes): pass
class test_time_to_live(BaseTimeToLive): pass
class test_priority(BasePriority): pass
class test_message(BaseMessage): pass
class test_event_loop(BaseEventLoop): pass
"""


def source_of(name: str) -> Path:
    """The folder of a package's source; fetched if it is not here yet."""
    folder = KEPT / f"{name}-{version(name)}"
    if not folder.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        fetch = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--no-binary"]
        subprocess.run(
            [*fetch, ":all:", "--dest", str(KEPT), f"{name}=={version(name)}"], check=True
        )
        with tarfile.open(KEPT / f"{folder.name}.tar.gz") as packed:
            packed.extractall(KEPT, filter="data")
    return folder


def failures(name: str, options: list[str]) -> list[str]:
    """The tests of a package that fail on a new broker."""
    folder = source_of(name)
    if name == "kombu":
        (folder / SUITES["kombu"][0]).write_text(KOMBU)
    with tempfile.TemporaryDirectory() as place:
        broker = BrokerProcess(Path(place) / "data", Path(place) / "log")
        broker.start()
        try:
            paths = os.pathsep.join([str(ROOT / "src"), str(folder)])
            plugins = ["-p", "dejaqueue.celery", "-p", "celery.contrib.pytest", "-p", "no:randomly"]
            given = ["-q", "-rf", "--tb=short", "-W", "ignore", "--timeout", "60", "-o", "addopts="]
            given += ["--log-level", "INFO"]
            found = subprocess.run(
                [sys.executable, "-m", "pytest", *SUITES[name], *plugins, *given, *options],
                cwd=folder,
                env=os.environ
                | {"PYTHONPATH": paths, "TEST_BROKER": broker.url, "TEST_BACKEND": broker.url}
                | {"WORKER_LOGLEVEL": "INFO"},  # as their tox.ini: two tests read what it logs
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
        finally:
            broker.stop()
    print(found.stdout)
    named = [line.split()[1] for line in found.stdout.splitlines() if line.startswith("FAILED ")]
    return [one.rpartition("::")[2] for one in named] or ["pytest"] * (found.returncode > 1)


def main(options: list[str]) -> int:
    """Run both; the exit status."""
    unexpected = [one for name in SUITES for one in failures(name, options) if one not in EXPECTED]
    print("not expected:", ", ".join(unexpected) or "none")
    return int(bool(unexpected))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
