"""`dejaq config`: values with their sources, files checked, the example.

Covered: table and JSON, --changed, every source, masks, every problem of a file, exit status.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.settings import known_settings
from tests.cli.conftest import invoke


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rows(*options: str) -> dict[str, dict[str, Any]]:
    found = invoke("config", "show", "--json", *options)
    assert found.exit_code == 0, found.output
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    return {line.pop("setting"): line for line in lines}


def test_show_gives_every_setting_as_default() -> None:
    shown = rows()
    assert set(shown) == {f"{group}.{name}" for group, name, _ in known_settings()}
    assert shown["server.port"] == {"value": 7464, "source": "default", "live": False}


def test_show_names_file_and_line_flag_and_assignment(tmp_path: Path) -> None:
    (tmp_path / "dejaq.toml").write_text('[server]\nhost = "::1"\n', encoding="utf-8")
    shown = rows("--changed", "--port", "0", "--set", "log.level=debug", "--data", "s3://a:b@c")
    assert shown == {
        "journal.url": {"value": "s3://a:***@c", "source": "--data", "live": False},
        "server.host": {"value": "::1", "source": "dejaq.toml:2", "live": False},
        "server.port": {"value": 0, "source": "--port", "live": False},
        "server.http_port": {"value": 0, "source": "--port", "live": False},
        "doq.port": {"value": 0, "source": "--port", "live": False},
        "log.level": {"value": "debug", "source": "--set log.level", "live": True},
    }
    text = invoke("config", "show", "--changed").stdout
    assert text.splitlines()[1].split() == ["server.host", "::1", "dejaq.toml:2", "no"]


def test_a_named_file_is_read_instead_of_the_usual_one(tmp_path: Path) -> None:
    (tmp_path / "dejaq.toml").write_text("[server]\nport = 1\n", encoding="utf-8")
    (tmp_path / "other.toml").write_text("[server]\nhttp_port = 2\n", encoding="utf-8")
    assert set(rows("--changed", "--config", "other.toml")) == {"server.http_port"}


def test_a_setting_that_is_given_twice_is_refused() -> None:
    found = invoke("config", "show", "--port", "1", "--set", "server.port=2")
    assert found.exit_code == 2
    assert "--set server.port: not together with --port" in found.stderr


def test_check_says_everything_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[server]\nport = -1\nprot = 1\n", encoding="utf-8")
    found = invoke("config", "check", "bad.toml")
    assert found.exit_code == 2
    assert found.stdout == ""
    assert sorted(line.partition(", got")[0] for line in found.stderr.splitlines()) == [
        "error: bad.toml:3: the name of a setting; the nearest is server.port",
        "error: server.port (bad.toml:2): a whole number from 0 to 65535",
    ]


def test_check_says_that_a_file_is_right(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text("[server]\nport = 1\n", encoding="utf-8")
    found = invoke("config", "check", "good.toml")
    assert (found.exit_code, found.stdout) == (0, "good.toml: 1 setting, nothing wrong\n")


def test_the_example_is_a_right_file(tmp_path: Path) -> None:
    found = invoke("config", "example")
    assert found.exit_code == 0
    assert set(tomllib.loads(found.stdout)) == {group for group, _, _ in known_settings()}
    (tmp_path / "example.toml").write_text(found.stdout, encoding="utf-8")
    assert invoke("config", "check", "example.toml").exit_code == 0
