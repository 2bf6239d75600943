"""`dejaq doctor`: everything at once, against a real broker and where there is none.

Not covered: each check's bounds (the files beside this one).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dejaqueue import clock
from dejaqueue.cli.doctor.command import check_environment
from tests.cli.conftest import Run, invoke


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether something keeps this machine's clock is not what is tested."""
    monkeypatch.setattr(clock, "is_kept", lambda: True)


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_broker_that_answers_is_asked(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "q"
    data.mkdir(mode=0o700)
    run("topic", "create", "hasty", "--lease", "100ms")
    found = run("doctor", "--data", str(data), "--json")
    assert found.exit_code == 0, found.output
    by_check = {row["check"]: row for row in rows(found.stdout)}
    assert "answers at" in by_check["broker"]["text"]
    assert by_check["topic"]["mend"] == "dejaq topic alter hasty"
    assert {"clock", "settings", "open files", "memory", "versions", "disk sync"} <= set(by_check)


def test_what_hurts_comes_first_and_is_the_exit_status(tmp_path: Path) -> None:
    url = "dejaq://127.0.0.1:1"  # nobody listens there
    options = ("--data", str(tmp_path), "--host", "0.0.0.0", "--port", "0")
    found = invoke("doctor", *options, "--quiet", url=url)
    lines = found.stdout.splitlines()
    assert (found.exit_code, lines[0][:5]) == (1, "hurts")
    assert "server.tls_certificate" in lines[1]
    assert any(line.startswith("look   broker: none answers") for line in lines)
    assert not any(line.startswith("fine") for line in lines)


def test_settings_that_are_wrong_are_a_finding() -> None:
    found = invoke("doctor", "--set", "server.http_port=99999", "--json")
    assert found.exit_code == 1
    first = rows(found.stdout)[0]
    assert (first["check"], "0 to 65535" in first["text"]) == ("settings", True)


def test_a_variable_that_only_looks_like_a_setting_is_told() -> None:
    names = ["DEJAQ_SERVER_PORT", "DEJAQ_SERVER__PORT", "DEJAQ_URL", "DEJAQ_TLS_KEY", "HOME"]
    [found] = check_environment(names)
    assert found.mend == "DEJAQ_SERVER__PORT, with two underscores"
