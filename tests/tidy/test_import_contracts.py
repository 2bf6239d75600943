"""Covers: every contract of .importlinter holds, and every one can fail.

A contract that nothing breaks may be one that checks nothing: each is shown a planted import in a
copy of the package. Not covered: what import-linter cannot see (ruff's banned calls do that).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dev.reaper import marks

ROOT = Path(__file__).resolve().parents[2]

# (contract, file of the package, line to plant)
FAULTS = [
    ("Rooms", "engine/commands.py", "import dejaqueue.journal.interface"),
    ("Rooms", "limits.py", "import dejaqueue.model"),
    ("Engine: a module imports", "engine/table.py", "import dejaqueue.engine.state"),
    ("Engine: a module imports", "engine/leases.py", "import dejaqueue.engine.key_index"),
    (
        "Broker: a room imports",
        "broker/shard/commit.py",
        "import dejaqueue.broker.partition.inbox",
    ),
    ("Broker: a room imports", "broker/letters/parcel.py", "import dejaqueue.broker.cron.fire"),
    ("The engine does no I/O", "engine/commands.py", "import time"),
    ("The engine does no I/O", "wire/frames.py", "import socket"),
    ("The engine does no I/O", "engine/commands.py", "import dejaqueue.clock"),
    (
        "The client never loads the broker",
        "client/transport.py",
        "import dejaqueue.engine.commands",
    ),
    ("Tasks are built", "tasks/app.py", "import dejaqueue.client._sync.client"),
    ("Tasks are built", "tasks/worker/board.py", "import dejaqueue.wire.frames"),
    ("Spark's executors", "spark/options.py", "import dejaqueue.engine.commands"),
    ("Celery's workers", "celery/names.py", "import dejaqueue.engine.commands"),
    ("The console calls", "console/topics.py", "import dejaqueue.broker.broker"),
    ("The broker knows no sockets", "journal/interface.py", "import socket"),
    ("The broker's door", "http/answers.py", "import dejaqueue.broker.partition"),
    ("The broker's door", "http/routes/topics.py", "import dejaqueue.broker.doq.messages"),
    ("The broker's door", "flight/server.py", "import dejaqueue.broker.calls.calls"),
    ("Journal backends", "journal/segments/files.py", "import dejaqueue.journal.memory"),
    (
        "Coordinator backends",
        "coordinator/in_process.py",
        "import dejaqueue.coordinator.etcd",
    ),
    ("What is not installed", "journal/interface.py", "import pandas"),
]


def lint(package_root: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts on the package below this folder."""
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()",
         "--no-cache", "--config", str(ROOT / ".importlinter")],
        cwd=package_root,
        env=marks() | {"PYTHONPATH": str(package_root), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )  # fmt: skip


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A copy of the package, to plant faults in."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src/dejaqueue", tmp_path / "dejaqueue", ignore=ignore)
    return tmp_path


def test_every_contract_holds() -> None:
    found = lint(ROOT / "src")
    assert found.returncode == 0, found.stdout
    assert " 0 broken" in found.stdout


@pytest.mark.parametrize(("contract", "file", "line"), FAULTS)
def test_a_planted_import_breaks_its_contract(
    planted: Path, contract: str, file: str, line: str
) -> None:
    target = planted / "dejaqueue" / file
    target.write_text(target.read_text(encoding="utf-8") + f"\n{line}\n", encoding="utf-8")
    found = lint(planted)
    assert found.returncode == 1, found.stdout + found.stderr
    broken = [row for row in found.stdout.splitlines() if " BROKEN" in row]
    assert any(row.startswith(contract) for row in broken), found.stdout


def test_every_contract_has_a_fault_that_breaks_it() -> None:
    named = [
        line.removeprefix("name = ")
        for line in (ROOT / ".importlinter").read_text(encoding="utf-8").splitlines()
        if line.startswith("name = ")
    ]
    shown = {contract for contract, _, _ in FAULTS}
    unshown = [name for name in named if not any(name.startswith(start) for start in shown)]
    assert unshown == []


def test_a_new_room_must_be_given_its_place(planted: Path) -> None:
    (planted / "dejaqueue" / "attic.py").write_text('"""A room nobody placed."""\n')
    found = lint(planted)
    assert found.returncode == 1
    assert "attic" in found.stdout


def test_a_new_module_of_the_engine_must_be_given_its_place(planted: Path) -> None:
    (planted / "dejaqueue" / "engine" / "cellar.py").write_text('"""Nobody placed this."""\n')
    found = lint(planted)
    assert found.returncode == 1
    assert "cellar" in found.stdout


def test_importing_the_client_loads_no_broker() -> None:
    code = (
        "import sys, dejaqueue.client\n"
        "rooms = ('broker', 'journal', 'coordinator', 'engine', 'flight')\n"
        "names = tuple(f'dejaqueue.{room}' for room in rooms)\n"
        "loaded = [name for name in sys.modules if name.startswith(names)]\n"
        "assert not loaded, loaded\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=marks() | {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
