"""Settings: which source wins, what is refused, and with which words.

Covered: precedence, names, bounds, relations, descriptions. What each setting does is tested where
it is used.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dejaqueue import settings
from dejaqueue.errors import BadRequest
from dejaqueue.settings import BrokerSettings, JournalSettings, ServerSettings, load


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(settings.ENVIRONMENT_PREFIX):
            monkeypatch.delenv(name)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_later_source_wins__code_file_environment_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(
        tmp_path / "dejaq.toml",
        '[server]\nhost = "file"\nport = 1\nhttp_port = 2\n[journal]\nurl = "memory:"\n',
    )
    assert load().server.port == 7464
    assert load(file).server.port == 1
    monkeypatch.setenv("DEJAQ_SERVER__PORT", "3")
    assert load(file).server.port == 3
    chosen = load(file, {"server": {"port": 4, "host": None}})
    assert (chosen.server.port, chosen.server.host) == (4, "file")
    assert chosen.server.http_port == 2
    assert chosen.journal.url == "memory:"
    assert type(chosen) is BrokerSettings


def test_building_settings_in_code_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEJAQ_SERVER__PORT", "3")
    assert BrokerSettings().server.port == 7464
    assert BrokerSettings(journal=JournalSettings(url="memory:")).journal.url == "memory:"


def test_unknown_key_in_file_is_refused_with_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path / "dejaq.toml", "[journal]\nsegment_byte = 1\n")
    with pytest.raises(BadRequest) as error:
        load(file)
    assert str(error.value) == (
        "the settings file: known settings; the nearest is journal.segment_bytes, "
        "got: 'journal.segment_byte'"
    )


@pytest.mark.parametrize("text", ["port = 1\n", "[sever]\nport = 1\n", "[sever]\n"])
def test_unknown_group_in_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadRequest, match=r"nearest is server\."):
        load(write(tmp_path / "dejaq.toml", text))


def test_unknown_key_in_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEJAQ_SERVER__PROT", "3")
    with pytest.raises(BadRequest, match=r"nearest is server\.port, got: 'server\.prot'"):
        load()


def test_environment_of_others_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEJAQ_URL", "dejaq://somewhere:1")
    monkeypatch.setenv("DEJAQ_PORT", "tcp://10.0.0.1:7464")
    assert load() == BrokerSettings()


@pytest.mark.parametrize(
    ("group", "field", "value", "text"),
    [
        ("server", "port", 65_536, "server.port: input should be less than or equal to 65535"),
        ("server", "port", "abc", "server.port: input should be a valid integer"),
        ("journal", "url", "", "journal.url: string should have at least 1 character"),
        ("dispatch", "workers", 0, "dispatch.workers: input should be greater than or equal to 1"),
        ("server", "http_port", 7464, "server: port and http_port must differ"),
    ],
)
def test_value_out_of_bounds_names_setting_limit_and_value(
    group: str, field: str, value: object, text: str
) -> None:
    with pytest.raises(BadRequest) as error:
        load(None, {group: {field: value}})
    assert str(error.value).startswith(text)
    assert str(value) in str(error.value)


def test_two_free_ports_may_be_asked_for() -> None:
    assert ServerSettings(port=0, http_port=0).http_port == 0


def test_file_that_is_missing_or_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="a file that can be read"):
        load(tmp_path / "none.toml")
    with pytest.raises(BadRequest, match="TOML"):
        load(write(tmp_path / "bad.toml", "[server\n"))


def test_every_setting_says_what_it_is_and_whether_it_changes_live() -> None:
    for group, name, field in settings.known_settings():
        text = field.description or ""
        assert "hange live." in text, f"{group}.{name}"
        number = isinstance(field.default, int)
        units = (
            "_bytes",
            "_ms",
            "_us",
            "_entries",
            "_per_s",
            "_rows_max",
            "_max",
            "port",
            "workers",
        )
        assert not number or name.endswith(units), f"{group}.{name} names no unit"
