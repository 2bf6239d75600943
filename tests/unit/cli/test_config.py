"""`dejaq config`: which settings options choose, what is shown, and what is wrong in a file.

Not covered: where files are looked for and how values are read (tests/unit/test_configuration.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.cli.config import FLAGS, read_settings
from dejaqueue.errors import BadRequest
from tests.cli.conftest import invoke

NOTHING: dict[str, Any] = {**dict.fromkeys(FLAGS), "assignments": (), "file": None}


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings file of the machine is near."""
    monkeypatch.chdir(tmp_path)


def shown(*arguments: str) -> dict[str, tuple[Any, str]]:
    found = invoke("config", "show", *arguments, "--json")
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    return {row["setting"]: (row["value"], row["source"]) for row in rows}


def test_a_port_of_0_frees_the_other_one__unless_it_is_given() -> None:
    found = read_settings(NOTHING | {"port": 0}).settings.server
    assert (found.port, found.http_port) == (0, 0)
    found = read_settings(NOTHING | {"port": 0, "http_port": 17}).settings.server
    assert (found.port, found.http_port) == (0, 17)
    found = read_settings(NOTHING | {"port": 18}).settings.server
    assert found.http_port == 7465


def test_a_setting_is_said_in_one_way() -> None:
    with pytest.raises(BadRequest, match="--set server.port: not together with --port"):
        read_settings(NOTHING | {"port": 1, "assignments": ("server.port=2",)})


def test_every_option_is_a_setting_that_there_is() -> None:
    values = {"--data": "memory:", "--node": "a", "--advertise": "h", "--host": "127.0.0.9"}
    words = [word for option in values.items() for word in option]
    found = shown("--changed", *words)
    assert found == {FLAGS[name.removeprefix("--")]: (values[name], name) for name in values}


def test_all_settings_are_shown_with_their_source__and_only_changed_ones_if_asked() -> None:
    found = shown("--set", "log.level=debug")
    assert len(found) > 30
    assert found["log.level"] == ("debug", "--set log.level")
    assert found["server.port"] == (7464, "default")
    assert shown("--changed", "--set", "log.level=debug") == {"log.level": found["log.level"]}


def test_a_password_is_not_shown() -> None:
    found = shown("--changed", "--data", "postgresql://user:secret@host/name")
    assert found["journal.url"][0] == "postgresql://user:***@host/name"


def test_everything_that_is_wrong_in_a_file_is_told__and_the_environment_plays_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dejaq.toml"
    file.write_text('[server]\nport = -1\n[log]\nlevl = "debug"\n')
    found = invoke("config", "check", str(file))
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.count("error: ") == 2
    assert "server.port" in found.stderr
    assert "levl" in found.stderr
    file.write_text("[server]\nport = 1\n")
    monkeypatch.setenv("DEJAQ_SERVER__HTTP_PORT", "nonsense")
    assert invoke("config", "check", str(file)).stdout == f"{file}: 1 setting, nothing wrong\n"


def test_the_example_is_a_right_file_that_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    file.write_text(invoke("config", "example").stdout)
    assert invoke("config", "check", str(file)).exit_code == 0
    values = {name: value for name, (value, _) in shown("--config", str(file)).items()}
    assert values == {name: value for name, (value, _) in shown().items()}
