from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dejaqueue.cluster.embedded import nodes_of, server_of, settings_beside
from dejaqueue.errors import BadRequest
from dejaqueue.settings import BrokerSettings, ClusterSettings, JournalSettings

NODES = "a=127.0.0.1:7470,b=127.0.0.1:7480,c=127.0.0.1:7490"


def settings(url: str, **cluster: Any) -> BrokerSettings:
    return BrokerSettings(
        journal=JournalSettings(url=url), cluster=ClusterSettings(node="a", **cluster)
    )


def test_each_node_has_two_ports() -> None:
    assert [(one.name, one.route_port, one.client_port) for one in nodes_of(NODES)] == [
        ("a", 7470, 7471),
        ("b", 7480, 7481),
        ("c", 7490, 7491),
    ]


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    assert nodes_of("a=[::1]:7470")[0].host == "::1"


@pytest.mark.parametrize("wrong", ["a", "a=", "a=h", "a=h:", "a=h:x", "=h:1", "a=h:0", "a=h:65535"])
def test_what_is_no_node_is_named(wrong: str) -> None:
    with pytest.raises(BadRequest, match=r"cluster\.nodes"):
        nodes_of(f"b=127.0.0.1:7480,{wrong}")


def test_no_nodes_no_server(tmp_path: Path) -> None:
    assert server_of(settings(str(tmp_path))) is None


@pytest.mark.parametrize("url", ["memory:", "postgresql://h/d"])
def test_the_servers_need_a_directory(url: str) -> None:
    with pytest.raises(BadRequest, match="a directory"):
        server_of(settings(url, nodes=NODES))


def test_one_coordinator_is_enough(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"cluster\.coordinator"):
        server_of(settings(str(tmp_path), nodes=NODES, coordinator="etcd://h"))


def test_a_secret_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="secret_file"):
        server_of(settings(str(tmp_path), nodes=NODES, secret_file=str(tmp_path / "none")))


def test_the_broker_is_told_of_the_server_and_keeps_its_other_settings(tmp_path: Path) -> None:
    given = settings(str(tmp_path), nodes=NODES)
    server = server_of(given)
    assert server is not None
    found = settings_beside(given, server)
    assert found.journal.url == found.cluster.coordinator == server.url
    assert found.journal.mirror == str(tmp_path / "mirror")
    assert found.dispatch == given.dispatch
