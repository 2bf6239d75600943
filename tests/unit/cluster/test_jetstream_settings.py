from pathlib import Path

import pytest

from dejaqueue.cluster.jetstream_settings import (
    Node,
    check_nodes,
    journal_url,
    password,
    settings_text,
)
from dejaqueue.connections.nats.url import read_url
from dejaqueue.errors import BadRequest

NODES = [Node(name, "127.0.0.1", 1000 + n, 2000 + n) for n, name in enumerate("abc")]


def test_what_is_acknowledged_is_synced() -> None:
    for nodes in (NODES[:1], NODES):
        text = settings_text(NODES[0], nodes, Path("/x"), "word")
        assert "  sync_interval: always\n" in text
        assert f"max_payload: {8 << 20}\n" in text


def test_a_node_knows_the_others_and_not_itself() -> None:
    text = settings_text(NODES[1], NODES, Path("/x"), "word")
    assert 'listen: "127.0.0.1:1001"' in text
    assert 'listen: "127.0.0.1:2001"' in text
    routes = next(line for line in text.splitlines() if "routes" in line)
    assert ":2000" in routes
    assert ":2002" in routes
    assert ":2001" not in routes


def test_one_node_has_no_cluster() -> None:
    assert "cluster" not in settings_text(NODES[0], NODES[:1], Path("/x"), "word")


def test_the_secret_is_nowhere() -> None:
    text = settings_text(NODES[0], NODES, Path("/x"), "my-secret")
    assert "my-secret" not in text + journal_url(NODES, NODES[0], 3, "my-secret")
    assert password("my-secret", "one") != password("my-secret", "two")
    assert password("my-secret", "one") != password("other", "one")


def test_the_url_begins_with_the_own_node() -> None:
    url = read_url(journal_url(NODES, NODES[2], 3, "s"))
    assert url.servers == ("127.0.0.1:1002", "127.0.0.1:1000", "127.0.0.1:1001")
    assert (url.replicas, url.password) == (3, password("s", url.user))
    assert url.system_password == password("s", url.system_user)


def test_servers_need_a_secret__on_one_machine_too() -> None:
    with pytest.raises(BadRequest, match=r"cluster\.secret"):
        check_nodes("a", NODES, "")
    assert check_nodes("a", NODES, "word") == NODES[0]


@pytest.mark.parametrize(
    ("node", "nodes"),
    [
        ("d", NODES),
        ("a", [NODES[0], NODES[0]]),
        ("a b", [Node("a b", "127.0.0.1", 1, 2)]),
        ("", [Node("", "127.0.0.1", 1, 2)]),
    ],
)
def test_nodes_that_are_no_cluster_are_refused(node: str, nodes: list[Node]) -> None:
    with pytest.raises(BadRequest, match=r"cluster\."):
        check_nodes(node, nodes, "word")
