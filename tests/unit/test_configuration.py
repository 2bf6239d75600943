"""Configuration: which source wins, what is refused and with which words, and who is named.

Covered: precedence, sources with their lines, names, bounds, relations, tables, masks.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dejaqueue import configuration
from dejaqueue.configuration import load, look, parse_assignment
from dejaqueue.errors import BadRequest
from dejaqueue.settings import BrokerSettings


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(configuration.ENVIRONMENT_PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "dejaq.toml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(text: str) -> str:
    with pytest.raises(BadRequest) as error:
        load(write(text))
    return str(error.value)


def test_later_source_wins__code_file_environment_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = write('[server]\nhost = "file"\nport = 1\nhttp_port = 2\n[journal]\nurl = "memory:"\n')
    assert load().settings.server.port == 7464
    assert load(file).settings.server.port == 1
    monkeypatch.setenv("DEJAQ_SERVER__PORT", "3")
    assert load(file).settings.server.port == 3
    loaded = load(file, {"server.port": ("--port", 4)})
    chosen = loaded.settings
    assert (chosen.server.port, chosen.server.host) == (4, "file")
    assert (chosen.server.http_port, chosen.journal.url) == (2, "memory:")
    assert type(chosen) is BrokerSettings


def test_each_value_knows_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEJAQ_DISPATCH__WORKERS", "3")
    monkeypatch.setenv("dejaq_dispatch__workers", "4")  # not ours: names are upper case
    file = write(
        '# settings\n\n[server]\nhost="file"\nport = 1 # one\n[journal]\nurl = """\nx"""\n'
    )
    loaded = load(file, {"server.port": ("--port", 4)})
    assert loaded.sources == {
        "server.host": "dejaq.toml:4",
        "server.port": "--port",
        "journal.url": "dejaq.toml:7",
        "dispatch.workers": "DEJAQ_DISPATCH__WORKERS",
    }
    assert loaded.source_of("clock.offset_us_max") == "default"
    assert loaded.settings.dispatch.workers == 3


def test_inline_tables_are_read_too_without_a_line() -> None:
    loaded = load(write("server = { port = 9 }\n"))
    assert loaded.settings.server.port == 9
    assert loaded.sources == {"server.port": "dejaq.toml"}


def test_unknown_key_in_file_is_refused_with_the_nearest_and_its_line() -> None:
    assert refusal("[journal]\nsegment_byte = 1\n") == (
        "dejaq.toml:2: the name of a setting; the nearest is journal.segment_bytes, "
        "got: 'journal.segment_byte'"
    )


@pytest.mark.parametrize(
    "text", ["http_port = 1\n", "[sever]\nport = 1\n", "[sever]\n", "server = 1\n"]
)
def test_unknown_group_in_file_is_refused(text: str) -> None:
    assert "nearest is server." in refusal(text)


def test_unknown_key_in_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEJAQ_SERVER__PROT", "3")
    with pytest.raises(BadRequest) as error:
        load()
    assert str(error.value) == (
        "DEJAQ_SERVER__PROT: the name of a setting; the nearest is server.port, got: 'server.prot'"
    )


def test_environment_of_others_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEJAQ_URL", "dejaq://somewhere:1")
    monkeypatch.setenv("DEJAQ_PORT", "tcp://10.0.0.1:7464")
    assert load().settings == BrokerSettings()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("server.port", 65_536, "server.port (--x): a whole number from 0 to 65535, got: 65536"),
        ("server.port", "abc", "server.port (--x): a whole number from 0 to 65535, got: 'abc'"),
        ("journal.url", "", "journal.url (--x): a text that is not empty, got: ''"),
        ("dispatch.workers", 0, "dispatch.workers (--x): a whole number from 1 to 256, got: 0"),
        (
            "dispatch.workers",
            True,
            "dispatch.workers (--x): a whole number from 1 to 256, got: Tru",
        ),
        ("log.level", "loud", "log.level (--x): one of debug, info, warning, error, got: 'loud'"),
        ("log.levels", {"a": "x"}, "log.levels (--x): a table of names, each with one of debug, "),
        (
            "server.http_port",
            7464,
            "server: port and http_port must differ, "
            "got: 'port 7464 (default), http_port 7464 (--x)'",
        ),
    ],
)
def test_value_out_of_bounds_names_setting_source_range_and_value(
    name: str, value: object, text: str
) -> None:
    with pytest.raises(BadRequest) as error:
        load(None, {name: ("--x", value)})
    assert str(error.value).startswith(text)


def test_everything_that_is_wrong_is_found_at_once() -> None:
    file = write('[server]\nport = -1\nprot = 1\n[dispatch]\nworkers = "many"\n')
    loaded, problems = look(file, environment=False)
    assert loaded is None
    assert [str(problem).split(":")[0] for problem in problems] == [
        "dejaq.toml",
        "dispatch.workers (dejaq.toml",
        "server.port (dejaq.toml",
    ]


def test_a_table_comes_from_file_environment_and_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = write('[log.levels]\n"dejaqueue.audit" = "error"\n')
    assert load(file).settings.log.levels == {"dejaqueue.audit": "error"}
    monkeypatch.setenv("DEJAQ_LOG__LEVELS", '{"uvicorn": "info"}')
    assert load(file).settings.log.levels == {"uvicorn": "info"}
    name, value = parse_assignment('log.levels={"a": "debug"}')
    assert load(file, {name: ("--set", value)}).settings.log.levels == {"a": "debug"}


def test_a_table_in_the_environment_that_is_no_json_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DEJAQ_LOG__LEVELS", "loud")
    with pytest.raises(BadRequest, match=r"DEJAQ_LOG__LEVELS.*as JSON.*got: 'loud'"):
        load()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("server.port", "--set: group.field=value, got: 'server.port'"),
        ("server.prot=1", "--set: the name of a setting; the nearest is server.port"),
        ("log.levels=loud", "log.levels (--set log.levels): a table of names"),
    ],
)
def test_a_wrong_assignment_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadRequest) as error:
        parse_assignment(text)
    assert str(error.value).startswith(words)


def test_file_that_is_missing_or_no_toml_is_refused() -> None:
    with pytest.raises(BadRequest, match="a file that can be read"):
        load(Path("none.toml"))
    with pytest.raises(BadRequest, match=r"TOML.*line 1"):
        load(write("[server\n", "bad.toml"))


def test_no_password_is_in_a_refusal() -> None:
    with pytest.raises(BadRequest) as error:
        load(None, {"dispatch.workers": ("--x", "s3://me:hidden@there")})
    assert "hidden" not in str(error.value)


def test_the_usual_file_is_the_one_that_exists() -> None:
    assert configuration.USUAL_FILES[0] == Path("dejaq.toml")
    assert configuration.usual_file() != Path("dejaq.toml")
    write("[server]\n")
    assert configuration.usual_file() == Path("dejaq.toml")
