"""Covers: what `dejaq doctor` makes of clocks, limits, memory and packages.

Not covered: what this very machine says (test_command.py).
"""

from __future__ import annotations

import resource

import pytest

from dejaqueue.cli.doctor import machine
from dejaqueue.findings import Finding, Level
from dejaqueue.setting_groups import OidcSettings
from dejaqueue.settings import (
    BrokerSettings,
    ClusterSettings,
    JournalSettings,
    ServerSettings,
)

MIB = 1 << 20


def test_a_clock_that_nothing_keeps_hurts__one_that_nobody_knows_of_is_looked_at() -> None:
    levels = [machine.check_clock(kept).level for kept in (True, None, False)]
    assert levels == [Level.FINE, Level.LOOK, Level.HURTS]


def test_files_have_to_do_for_connections() -> None:
    settings = BrokerSettings(server=ServerSettings(http_connections_max=2_000))
    short = machine.check_files(settings, 2_999)
    assert (short.level, "LimitNOFILE=3000" in short.mend) == (Level.HURTS, True)
    for enough in (3_000, resource.RLIM_INFINITY):
        assert machine.check_files(settings, enough).level is Level.FINE
    assert machine.check_files(settings).text, "what this process may open"


@pytest.mark.parametrize(
    ("there_is", "asked", "level"),
    [
        (511 * MIB, -1, Level.HURTS),
        (600 * MIB, -1, Level.LOOK),
        (2_048 * MIB, -1, Level.FINE),
        (2_048 * MIB, 0, Level.FINE),
        (2_048 * MIB, 2_049 * MIB, Level.HURTS),
    ],
)
def test_memory_has_to_do_for_what_is_asked(there_is: int, asked: int, level: Level) -> None:
    settings = BrokerSettings(server=ServerSettings(memory_bytes_max=asked))
    assert machine.check_memory(settings, there_is).level is level


def packages(settings: BrokerSettings, lacks: set[str], patch: pytest.MonkeyPatch) -> list[Finding]:
    patch.setattr(machine, "find_spec", lambda name: None if name in lacks else object())
    versions, *found = machine.check_packages(settings)
    assert (versions.check, "pyarrow" in versions.text) == ("versions", True)
    return found


def test_packages_that_the_settings_need_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = BrokerSettings(
        journal=JournalSettings(url="mysql://u@h/d"),
        cluster=ClusterSettings(coordinator="etcd://h:2379", nodes="a=h:1"),
        oidc=OidcSettings(issuer="https://issuer.example", audience="dejaq"),
    )
    assert packages(settings, set(), monkeypatch) == []
    lacks = {"uvicorn", "pymysql", "httpx", "nats", "jwt"}
    found = packages(settings, lacks, monkeypatch)
    assert [(one.level, one.mend) for one in found] == [
        (Level.LOOK, 'pip install "dejaqueue[http]"'),
        (Level.HURTS, 'pip install "dejaqueue[etcd]"'),
        (Level.HURTS, 'pip install "dejaqueue[mysql]"'),
        (Level.HURTS, 'pip install "dejaqueue[nats]"'),
        (Level.HURTS, 'pip install "dejaqueue[oidc]"'),
    ]
    assert packages(BrokerSettings(), lacks - {"uvicorn"}, monkeypatch) == []
