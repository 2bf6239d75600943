"""The parts of `dejaq serve`: signals, warnings, the first key's token, settings read again.

Not covered: the process as a whole (tests/cli/test_serve.py, test_serve_secured.py).
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dejaqueue.access import administration
from dejaqueue.access.gate import Gate
from dejaqueue.access.key_ring import InMemory, KeyRing
from dejaqueue.access.tls import BrokerPapers, ServerTls
from dejaqueue.broker.broker import Broker
from dejaqueue.cli import serve as module
from dejaqueue.cli.clustering import ClusterSeat
from dejaqueue.configuration import Loaded, load
from dejaqueue.errors import BadRequest, DejaQError
from dejaqueue.http.health import HealthServer
from dejaqueue.settings import (
    BrokerSettings,
    ClusterSettings,
    JournalSettings,
    ServerSettings,
)
from dejaqueue.testing.virtual_clock import VirtualClock

OPEN = "0.0.0.0"


def settings(host: str = OPEN, url: str = "memory:") -> BrokerSettings:
    return BrokerSettings(journal=JournalSettings(url=url), server=ServerSettings(host=host))


def gate(*grants: str) -> Gate:
    keys = KeyRing(VirtualClock(), InMemory())
    if grants:
        keys.create("root", list(grants))
    return Gate(keys)


# --- signals ------------------------------------------------------------------------------------


@pytest.fixture
def blocked() -> Iterator[None]:
    numbers = (*module.STOPPING_SIGNALS, signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    yield
    while signal.sigtimedwait(numbers, 0):
        pass
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.usefixtures("blocked")
@pytest.mark.parametrize("stop", module.STOPPING_SIGNALS)
def test_sighup_reads_the_settings_again__and_a_signal_to_stop_ends_it(
    stop: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TERMINAL", "/no/such/terminal")
    read: list[int] = []

    def read_again() -> None:
        read.append(1)
        signal.pthread_kill(threading.get_ident(), signal.SIGHUP if len(read) < 3 else stop)

    signal.pthread_kill(threading.get_ident(), signal.SIGHUP)
    module._wait_for_the_end(read_again)
    assert len(read) == 3


@pytest.mark.usefixtures("blocked")
def test_sighup_stops_it_when_its_terminal_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = tmp_path / "terminal"
    terminal.touch()
    monkeypatch.setattr(module, "TERMINAL", str(terminal))
    read: list[int] = []

    def read_again() -> None:
        read.append(1)
        terminal.unlink()
        signal.pthread_kill(threading.get_ident(), signal.SIGHUP)

    signal.pthread_kill(threading.get_ident(), signal.SIGHUP)
    module._wait_for_the_end(read_again)
    assert len(read) == 1


# --- who may do what ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "is_keyed", "is_secured", "has_issuer", "said"),
    [
        ("127.0.0.1", False, False, False, []),
        (OPEN, False, False, False, ["no API key", "without TLS"]),
        (OPEN, True, False, False, ["without TLS"]),
        (OPEN, False, True, False, ["no API key"]),
        (OPEN, False, True, True, []),
    ],
)
def test_what_others_on_the_network_can_do_is_said(
    caplog: pytest.LogCaptureFixture,
    host: str,
    is_keyed: bool,
    is_secured: bool,
    has_issuer: bool,
    said: list[str],
) -> None:
    tls = cast(ServerTls, object()) if is_secured else None
    tokens = cast(Any, object()) if has_issuer else None
    module._warn_if_open(host, gate("admin:*") if is_keyed else gate(), tls, tokens)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * len(said)
    for record, words in zip(caplog.records, said, strict=True):
        assert words in record.getMessage()


def test_the_first_key_of_a_broker_that_others_reach_needs_a_token_from_its_directory(
    tmp_path: Path,
) -> None:
    given = gate()
    token = module._start_token(settings(url=str(tmp_path)), given)
    assert token is not None
    assert token.path.parent == tmp_path
    assert token.path.read_text().strip() == token.text
    asked = {"name": "root", "grants": ["admin:*"]}
    with pytest.raises(DejaQError, match="start-up token"):
        administration.act(given.keys, "create_key", asked, is_near=True)
    shown = asked | {"start_token": token.text}
    administration.act(given.keys, "create_key", shown, is_near=True)
    assert not token.path.exists()


@pytest.mark.parametrize("why", ["loopback", "keys"])
def test_no_token_is_needed_on_this_machine_alone__or_where_there_are_keys(
    tmp_path: Path, why: str
) -> None:
    host = "127.0.0.1" if why == "loopback" else OPEN
    given = gate("admin:*") if why == "keys" else gate()
    assert module._start_token(settings(host, str(tmp_path)), given) is None
    assert list(tmp_path.iterdir()) == []


# --- settings that are read again ---------------------------------------------------------------


@pytest.fixture
def broker() -> Broker:
    return Broker(settings("127.0.0.1"), VirtualClock())


def loaded(**flags: Any) -> Loaded:
    words = {name.replace("__", "."): ("--set", value) for name, value in flags.items()}
    return load(None, {"journal.url": ("--data", "memory:")} | words)


def again(broker: Broker, found: Loaded | BadRequest) -> None:
    def read() -> Loaded:
        if isinstance(found, BadRequest):
            raise found
        return found

    module._change_settings(broker, read, ClusterSeat(broker.settings))


def test_what_can_change_live_is_taken_over__and_what_cannot_is_said(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dejaqueue.serve")
    again(broker, loaded(server__port=9, log__level="debug"))
    assert (broker.settings.server.port, broker.settings.log.level) == (7464, "debug")
    said = {record.levelname: record.getMessage() for record in caplog.records}
    assert said["INFO"].startswith("log.level: 'debug' instead of 'info'")
    assert said["WARNING"].startswith("server.port: needs a new start to be 9")
    again(broker, loaded(log__level="info"))
    assert broker.settings.log.level == "info"


def test_wrong_settings_change_nothing(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    before = broker.settings
    again(broker, BadRequest("log.level", "a level", "loud"))
    assert broker.settings is before
    assert "the settings stay as they are: log.level" in caplog.text


def test_the_same_settings_are_said_to_be_the_same(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dejaqueue.serve")
    again(broker, loaded())
    assert caplog.messages == ["settings read again: nothing has changed"]


def test_certificates_are_looked_at_after_settings_that_are_wrong__too(broker: Broker) -> None:
    looked: list[int] = []
    watch = SimpleNamespace(look=lambda: looked.append(1))

    def read() -> Loaded:
        raise BadRequest("x", "y", "z")

    module._look_again(broker, read, ClusterSeat(broker.settings), cast(Any, watch))
    assert looked == [1]


# --- what is put together -----------------------------------------------------------------------


def test_papers_towards_other_brokers_are_watched_where_there_are_any() -> None:
    tls, papers = cast(ServerTls, object()), cast(BrokerPapers, object())
    among = BrokerSettings(cluster=ClusterSettings(coordinator="etcd://h"))
    watched = {
        name: set(module._watch(given, own, papers)._watched)
        for name, given, own in (
            ("alone", BrokerSettings(), None),
            ("secured", BrokerSettings(), tls),
            ("among others", among, tls),
        )
    }
    assert watched == {
        "alone": set(),
        "secured": {"certificate of the server"},
        "among others": {"certificate of the server", "certificate towards other brokers"},
    }


def test_where_it_listens_is_a_line_without_the_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = settings("127.0.0.1", "postgresql://u:secret@h/d")
    module._say_where(given, "dejaq://127.0.0.1:1", 2, as_json=False)
    line = capsys.readouterr().out
    assert line == (
        "listening dejaq://127.0.0.1:1 (http://127.0.0.1:2/stats, data in postgresql://u:***@h/d)\n"
    )
    module._say_where(given, "dejaq://127.0.0.1:1", 2, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown["http_url"] == "http://127.0.0.1:2"
    assert "secret" not in shown["data"]


def test_without_the_extra_only_health_is_served__and_it_is_said(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "dejaqueue.http.server", None)
    given = BrokerSettings(server=ServerSettings(http_port=0))
    onward = cast(Any, (None, None))
    server = module._http_server(given, broker, gate(), None, lambda: True, onward)
    try:
        assert isinstance(server, HealthServer)
        assert 'pip install "dejaqueue[http]"' in caplog.text
    finally:
        server.stop()
