"""The settings check: each thing that will hurt is named with the line that changes it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.cli.main import main
from dejaqueue.console import checks
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.integration.access_fixture import give_keys, running
from tests.unit.console.conftest import Browser

NOW_MS = 1_000_000
CAREFUL: dict[str, Any] = {"max_backlog_count": 9, "max_attempts": 3, "lease_ms": 10_000}


@pytest.mark.parametrize(
    ("name", "row", "settings", "title", "line"),
    [
        ("t", {}, {"max_backlog_count": 0}, "Nothing bounds", "topic alter t --max-backlog"),
        ("t", {}, {"max_attempts": 0}, "for ever", "topic alter t --max-attempts 10"),
        (
            "t",
            {"delivered": 200, "expired": 3},
            {},
            "3 of 200 deliveries outlasted their lease of 10 s",
            "topic alter t --lease 20000ms",
        ),
        ("t.dead", {"scheduled": 1}, {"max_attempts": 0}, "nobody reads", "dead list t.dead"),
    ],
)
def test_what_will_hurt_is_named(
    name: str, row: dict[str, int], settings: dict[str, Any], title: str, line: str
) -> None:
    [found] = checks.of_topic(name, row, CAREFUL | settings)
    assert title in found.title
    assert found.line.startswith(f"dejaq {line}")


@pytest.mark.parametrize(
    ("name", "row"),
    [("t", {}), ("t", {"delivered": 200, "expired": 2}), ("t", {"delivered": 50, "expired": 50}),
     ("t.dead", {"scheduled": 1, "consumers": 1})],
)  # fmt: skip
def test_what_is_set_with_care_is_not(name: str, row: dict[str, int]) -> None:
    assert (
        checks.of_topic(name, row, CAREFUL | {"max_backlog_count": 0, "max_backlog_bytes": 1}) == []
    )


def test_keys_that_end_soon_are_named__and_none_at_all() -> None:
    assert "no API keys" in checks.of_keys([], NOW_MS)[0].title
    keys = [
        {"name": name, "grants": ["produce:a", "observe:*"], "ends_ms": ends_ms}
        for name, ends_ms in (("never", None), ("soon", NOW_MS + 86_400_000), ("late", 1 << 50))
    ]
    [found] = checks.of_keys(keys, NOW_MS)
    assert "soon" in found.title
    assert found.line.endswith("--grant 'produce:a' --grant 'observe:*'")


def test_what_the_machine_lacks_is_named_with_its_broker() -> None:
    one = {"check": "room", "level": "look", "text": "little is left", "mend": "df -h /d"}
    [found] = checks.of_machine({"node": "b", "findings": [one]})
    assert found == checks.Check("", "Room (b): little is left", "df -h /d")
    assert checks.of_machine({"node": "", "findings": []}) == []


def test_every_line_is_one_that_the_command_takes() -> None:
    row = {"delivered": 200, "expired": 200, "scheduled": 1}
    found = [*checks.of_topic("t", row, {"lease_ms": 5}), *checks.of_topic("t.dead", row, {})]
    found += checks.of_keys([], NOW_MS)
    found += checks.of_keys([{"name": "k", "grants": ["admin:*"], "ends_ms": NOW_MS}], NOW_MS)
    for one in found:
        program, *arguments = shlex.split(one.line)
        assert program == "dejaq"
        command: click.Command = main
        while isinstance(command, click.Group):
            found_command = command.get_command(click.Context(command), arguments.pop(0))
            assert found_command is not None, one.line
            command = found_command
        command.make_context("dejaq", arguments)  # raises click.UsageError for what it cannot take


def test_the_page_names_what_an_admin_s_machine_lacks__and_to_nobody_else(tmp_path: Path) -> None:
    settings = BrokerSettings(
        journal=JournalSettings(url=str(tmp_path), reserve_bytes=1 << 60),
    )
    broker = Broker(settings)
    broker.start()
    server = HttpServer(Service(broker, Gate(broker.keys), lambda: True), "127.0.0.1", 0)
    server.start()
    try:
        browser = Browser(f"http://127.0.0.1:{server.port}")
        page = browser.get("/checks")
        assert "Room: " in page
        assert f"df -h {tmp_path}" in page
        assert "Backups: no backups are taken by themselves" in page
        assert "DEJAQ_BACKUP__URL=" in page
        broker.keys.create("root", ["admin:*"])
        _, key = broker.keys.create("some", ["manage:*"])
        browser.log_in(key)
        assert "Room: " not in browser.get("/checks")
        browser.http.close()
    finally:
        server.stop()
        broker.stop()


def test_the_page_names_what_the_viewer_could_change() -> None:
    with running() as site:
        browser = Browser(site.http_url)
        for name in ("mine", "theirs"):
            browser.post("/topics", name=name)
        page = browser.get("/checks")
        assert "There are no API keys" in page
        assert "dejaq topic alter theirs --max-attempts 10" in page
        give_keys(site)
        browser.log_in(site.keys["manage mine"])
        page = browser.get("/checks")
        assert "dejaq topic alter mine --max-attempts 10" in page
        assert "theirs" not in page
        browser.http.close()
