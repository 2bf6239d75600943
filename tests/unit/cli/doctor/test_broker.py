"""Covers: what `dejaq doctor` makes of ports and of what a cluster tells of its brokers.

Not covered: a broker that answers (test_command.py).
"""

from __future__ import annotations

import socket
from typing import Any

from dejaqueue.cli.doctor.broker import check_nodes, check_ports
from dejaqueue.findings import Level
from dejaqueue.settings import BrokerSettings, ServerSettings
from dejaqueue.version import __version__


def test_a_port_that_somebody_has_hurts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = BrokerSettings(server=ServerSettings(port=port, http_port=0))
        first, second = check_ports(settings)
    assert (first.level, first.mend) == (Level.HURTS, f"ss -ltnp 'sport = :{port}'")
    assert second.level is Level.FINE


def node(name: str, version: str = __version__, *, apart: bool = False) -> dict[str, Any]:
    return {"node": name, "version": version, "clock": {"apart": apart}}


def told(nodes: list[dict[str, Any]], owner: str = "a") -> list[tuple[str, str]]:
    topics = [{"topic": "t", "node": owner}]
    found = check_nodes({"nodes": nodes, "topics": topics if nodes else []})
    return [(one.check, str(one.level)) for one in found]


def test_clocks_versions_and_topics_without_a_broker_are_told() -> None:
    assert told([]) == []
    assert told([node("a"), node("b")]) == [("cluster", "fine")]
    assert told([node("a", apart=True)])[0] == ("clock", "hurts")
    assert told([node("a"), node("b", "9.9.9")])[0] == ("versions", "look")
    assert told([node("a", "9.9.9")])[0] == ("versions", "look")
    assert told([node("a")], owner="")[0] == ("cluster", "hurts")
