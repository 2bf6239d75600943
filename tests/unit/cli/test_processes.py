"""Covers: which settings fit several processes, and what children are given.

Not covered: processes that run (tests/crash/test_processes_kill.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dejaqueue.cli.processes import Processes, _arguments
from dejaqueue.errors import BadRequest
from dejaqueue.setting_groups import DoqSettings
from dejaqueue.settings import BrokerSettings, ClusterSettings, JournalSettings, ServerSettings


def settings(
    url: str = "data",
    cluster: dict[str, Any] | None = None,
    doq: DoqSettings | None = None,
    **server: Any,
) -> BrokerSettings:
    return BrokerSettings(
        doq=doq or DoqSettings(),
        journal=JournalSettings(url=url),
        cluster=ClusterSettings(**(cluster or {})),
        server=ServerSettings(**({"processes": "3"} | server)),
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (settings("memory:"), "where messages are kept in a directory here"),
        (settings("postgresql://h/d"), "where messages are kept in a directory here"),
        (settings("sqlite:///x"), "where messages are kept in a directory here"),
        (settings(cluster={"coordinator": "etcd://h"}), "its brokers are processes already"),
        (settings(host="0.0.0.0"), "a name by which clients reach this machine"),
        (settings(port=7464, http_port=7468), "a port that leaves room"),
        (settings(port=65_531), "a port that leaves room"),
        (
            settings(doq=DoqSettings(enabled=True)),
            "false where several processes divide a directory",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: BrokerSettings, text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        Processes(given, {})


@pytest.mark.parametrize(
    "given",
    [
        settings(),
        settings("segment:///tmp/data"),
        settings(port=0, http_port=7465),
        settings(host="0.0.0.0", cluster={"advertise": "queue.example"}),
    ],
)
def test_settings_that_fit_are_taken(given: BrokerSettings) -> None:
    assert len(Processes(given, {}).names) == 3


def test_children_get_the_same_command_line() -> None:
    chosen = {
        "data": "d",
        "http_port": 0,
        "host": None,
        "assignments": ("log.level=debug", "journal.segment_bytes=4096"),
        "file": Path("/etc/x.toml"),
    }
    assert _arguments(chosen) == [
        *("--data", "d", "--http-port", "0", "--set", "log.level=debug"),
        *("--set", "journal.segment_bytes=4096", "--config", "/etc/x.toml"),
    ]
