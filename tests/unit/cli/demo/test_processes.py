"""The demo's processes: started, watched by their lines, ended. Small programs stand for the real
ones, which tests/cli/test_demo.py starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from dejaqueue.cli.demo import processes as module
from dejaqueue.cli.demo.processes import BrokerProcess, ConsumerProcess
from dejaqueue.errors import Unavailable

SERVE = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
port = sys.argv[sys.argv.index("--port") + 1]
print('{"url": "dejaq://127.0.0.1:%s"}' % (port if port != "0" else "7777"), flush=True)
signal.sigwait([signal.SIGTERM])
sys.exit(3)
"""
REFUSE = "import sys; sys.stderr.write('the port is taken'); sys.exit(2)"
CONSUME = """
import sys
print("ready", flush=True)
print("words" if sys.stdin.readline() != "begin\\n" else "12", flush=True)
sys.stdin.read()
print("13")
"""
FAIL = CONSUME + "sys.stderr.write('disk full'); sys.exit(4)"

Plays = Callable[[str], list[list[str]]]


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Plays:
    """From now on this program is what is started; returns what it is started with."""

    def play(program: str) -> list[list[str]]:
        started: list[list[str]] = []

        def start(arguments: list[str], log: IO[bytes], *, stdin: int) -> subprocess.Popen[str]:
            started.append(arguments)
            return subprocess.Popen(
                [sys.executable, "-S", "-c", program, *arguments],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

        monkeypatch.setattr(module, "_start", start)
        return started

    return play


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_broker_keeps_its_address_over_a_kill(plays: Plays, tmp_path: Path) -> None:
    started = plays(SERVE)
    broker = BrokerProcess(tmp_path / "data", tmp_path / "log", ["--node", "a"])
    with broker:
        assert broker.url == "dejaq://127.0.0.1:7777"
        first = broker.pid
        broker.kill()
        assert not is_running(first)
        with pytest.raises(Unavailable, match="does not run"):
            _ = broker.pid
        broker.start()
        assert broker.url == "dejaq://127.0.0.1:7777"
        last = broker.pid
    assert not is_running(last)
    ports = [words[words.index("--port") + 1] for words in started]
    assert ports == ["0", "7777"]
    assert all(words[-3:] == ["--node", "a", "--json"] for words in started)
    assert broker.stop() == 0, "nothing runs any more"


def test_a_broker_is_asked_to_stop__and_its_status_told(plays: Plays, tmp_path: Path) -> None:
    plays(SERVE)
    broker = BrokerProcess(tmp_path, tmp_path / "log")
    broker.start()
    assert broker.stop() == 3


def test_a_broker_that_does_not_start_says_why(plays: Plays, tmp_path: Path) -> None:
    plays(REFUSE)
    broker = BrokerProcess(tmp_path, tmp_path / "log")
    with pytest.raises(Unavailable, match="did not start: the port is taken"):
        broker.start()
    plays("")
    with pytest.raises(Unavailable, match="said nothing"):
        BrokerProcess(tmp_path, tmp_path / "other").start()


def consumer(tmp_path: Path, **more: Any) -> ConsumerProcess:
    log = tmp_path / "log"
    return ConsumerProcess("dejaq://h", "t", tmp_path / "out", log_path=log, **more)


def test_a_consumer_gets_ready__begins_when_told__and_counts(plays: Plays, tmp_path: Path) -> None:
    [words] = [plays(CONSUME)]
    started = consumer(tmp_path, confirm=True)
    try:
        assert words[0][-1] == "--confirm"
        started.wait_ready()
        assert started.count == 0
        started.begin()
        started.stop()
        assert started.count == 13
    finally:
        started.kill()
    started.kill()


def test_a_consumer_that_fails_says_why(plays: Plays, tmp_path: Path) -> None:
    plays(FAIL)
    started = consumer(tmp_path, confirm=False)
    started.wait_ready()
    with pytest.raises(Unavailable, match="ended with status 4: disk full"):
        started.stop()
    plays(REFUSE)
    started = consumer(tmp_path, confirm=False)
    with pytest.raises(Unavailable, match="did not start"):
        started.wait_ready()
    started.kill()


def test_a_module_is_started_from_this_package_wherever_it_was_imported_from(
    tmp_path: Path,
) -> None:
    with (tmp_path / "log").open("wb") as log:
        process = module._start(["dejaqueue", "--version"], log, stdin=subprocess.DEVNULL)
    assert os.getpgid(process.pid) == process.pid, "Ctrl-C is for the demo alone"
    assert process.communicate(timeout=60)[0].startswith("dejaq, version")
