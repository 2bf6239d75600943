"""`dejaq serve` as a process: where it listens, how it stops, what it refuses.

Covered: the printed line, HTTP, SIGTERM and SIGINT by pid, data kept over a restart, a directory in
use. SIGKILL under load: tests/crash and tests/cli/test_demo.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import invoke
from tests.patience import PATIENCE_SECONDS


class Serve:
    """A running `dejaq serve`."""

    def __init__(self, *options: str, cwd: Path, **environment: str) -> None:
        kept = {name: v for name, v in os.environ.items() if not name.startswith("DEJAQ_")}
        path = os.pathsep.join(filter(None, sys.path))
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "dejaqueue", "serve", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=kept | {"PYTHONPATH": path, **environment},
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def where(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.line())
        return found

    def log_line(self) -> dict[str, Any]:
        """The next line of the log."""
        assert self.process.stderr is not None
        found: dict[str, Any] = json.loads(self.process.stderr.readline())
        return found

    def end(self, number: int | None = None) -> tuple[int, str]:
        """Its exit status and what it said on standard error."""
        if number is not None:
            self.process.send_signal(number)
        _, said = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, said


Start = Callable[..., Serve]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Serve] = []

    def begin(*options: str, **environment: str) -> Serve:
        started.append(Serve(*options, cwd=tmp_path, **environment))
        return started[-1]

    yield begin
    for serve in started:
        if serve.process.poll() is None:
            serve.process.kill()
        serve.process.communicate()


def ask(http_url: str, path: str) -> tuple[int, dict[str, Any]]:
    connection = HTTPConnection(http_url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return answer.status, body


def error_line(said: str) -> str:
    """The last line, which alone is for people; those before are the log, which may say that
    nothing keeps this machine's clock."""
    *before, last = said.splitlines()
    lines = [json.loads(line) for line in before]
    assert all(one["level"] == "info" or "clock" in one["message"] for one in lines)
    assert last.startswith("error: ")
    return last


def test_whether_the_machines_clock_is_kept_is_told_as_its_kernel_says(start: Start) -> None:
    """A machine without time synchronisation shows the one, one with it the other."""
    kernel = [sys.executable, "-c", "from dejaqueue.clock import is_kept; print(is_kept())"]
    kept = subprocess.run(kernel, capture_output=True, text=True, check=True).stdout.strip()
    serve = start("--data", "kept", "--port", "0", "--json")
    url = serve.where()["http_url"]
    status, ready = ask(url, "/readyz")
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    _, said = serve.end(signal.SIGTERM)
    assert (status, ready["status"]) == (200, "ready")
    state = re.findall("^dejaq_clock_kept_state ([01])$", metrics, re.MULTILINE)
    assert state == {"True": ["1"], "False": ["0"], "None": []}[kept]
    for told in (" ".join(ready.get("warnings", ())), said):
        assert told.count("no time synchronisation keeps") == (kept == "False")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_messages_are_kept_over_a_graceful_stop(start: Start, number: int) -> None:
    serve = start("--data", "kept", "--port", "0", "--json")
    where = serve.where()
    assert where["data"] == "kept"
    status, ready = ask(where["http_url"], "/readyz")
    assert (status, ready["status"]) == (200, "ready")
    assert invoke("topic", "create", "a", url=where["url"]).exit_code == 0
    assert invoke("send", "a", "--text", "hello", url=where["url"]).exit_code == 0
    assert ask(where["http_url"], "/stats")[1]["topics"]["a"]["scheduled"] == 1
    status, said = serve.end(number)
    assert status == 0
    messages = [json.loads(line)["message"] for line in said.splitlines()]
    assert messages[0].startswith("dejaq ")
    assert messages[-2].startswith("stopping")
    assert messages[-1].startswith("stopped")

    again = start("--data", "kept", "--port", "0", "--json").where()
    assert invoke("consume", "a", "--max", "1", url=again["url"]).stdout == "hello\n"


def test_printed_line_names_the_url(start: Start) -> None:
    line = start("--data", "memory:", "--port", "0").line()
    assert line.startswith("listening dejaq://127.0.0.1:")
    assert "data in memory:" in line
    url = line.split()[1]
    assert invoke("stats", url=url).exit_code == 0


def test_directory_in_use_is_refused_with_status_6(start: Start) -> None:
    start("--data", "one", "--port", "0").line()
    status, said = start("--data", "one", "--port", "0").end()
    assert status == 6
    assert "give --data another one" in error_line(said)


def test_http_port_in_use_is_refused_with_status_2(start: Start) -> None:
    where = start("--data", "memory:", "--port", "0", "--json").where()
    taken = where["http_url"].rpartition(":")[2]
    status, said = start("--data", "memory:", "--port", "0", "--http-port", taken).end()
    assert status == 2
    assert "server.http_port: a free port" in said


def test_flight_port_in_use_is_refused_in_one_line(start: Start) -> None:
    where = start("--data", "memory:", "--port", "0", "--json").where()
    taken = where["url"].rpartition(":")[2]
    status, said = start("--data", "memory:", "--port", taken, "--http-port", "0").end()
    assert status == 2
    assert "server.port: a free port" in error_line(said)


def test_settings_come_from_file_environment_and_command_line(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "dejaq.toml"
    file.write_text('[journal]\nurl = "from-file"\n[server]\nport = 0\nhttp_port = 0\n')
    assert start("--config", str(file), "--json").where()["data"] == "from-file"
    named = start("--json", DEJAQ_CONFIG=str(file), DEJAQ_JOURNAL__URL="from-environment")
    assert named.where()["data"] == "from-environment"
    both = start("--json", "--data", "x", "--config", str(file), DEJAQ_JOURNAL__URL="y")
    assert both.where()["data"] == "x"


@pytest.mark.parametrize(
    ("options", "environment", "text"),
    [
        (["--port", "70000"], {}, "server.port (--port): a whole number from 0 to 65535"),
        (["--config", "none.toml"], {}, "settings file: a file that can be read"),
        ([], {"DEJAQ_SERVER__PROT": "1"}, "the nearest is server.port"),
    ],
)
def test_wrong_settings_are_refused_with_status_2(
    start: Start, options: list[str], environment: dict[str, str], text: str
) -> None:
    status, said = start(*options, **environment).end()
    assert status == 2
    assert text in said
    assert said.count("\n") == 1


def test_sighup_reads_the_settings_again(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "dejaq.toml"
    file.write_text("[dispatch]\nworkers = 1\n")
    serve = start("--data", "memory:", "--port", "0", "--json")
    serve.where()

    def hang_up(text: str) -> list[dict[str, Any]]:
        file.write_text(text)
        serve.process.send_signal(signal.SIGHUP)
        return [serve.log_line() for _ in text.splitlines()]

    first = serve.log_line()
    assert first["message"].endswith("settings from dejaq.toml")
    while not first["message"].startswith("serving"):
        first = serve.log_line()
    changes = hang_up("dispatch.workers = 2\ndispatch.group_rows_max = 5\n")
    assert changes[0]["message"] == ("dispatch.group_rows_max: 5 instead of 65536 (dejaq.toml:2)")
    assert changes[0]["setting"] == "dispatch.group_rows_max"
    assert changes[1]["level"] == "warning"
    assert changes[1]["message"] == (
        "dispatch.workers: needs a new start to be 2 (dejaq.toml:1); it stays 1"
    )
    (refused,) = hang_up("dispatch.workers = 0\n")
    assert refused["level"] == "error"
    assert "a whole number from 1 to 256, got: 0" in refused["message"]
    (turned,) = hang_up('log.level = "debug"\n')[:1]
    assert "65536 instead of 5" in turned["message"]
    assert serve.end(signal.SIGTERM)[0] == 0
