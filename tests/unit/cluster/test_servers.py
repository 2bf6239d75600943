from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.cluster.embedded import server_of
from dejaqueue.cluster.jetstream_settings import Node
from dejaqueue.cluster.servers import (
    FILE,
    PREFIX,
    ServerAddress,
    ServerList,
    merged,
    read_addresses,
    write_addresses,
)
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import Refused
from dejaqueue.settings import BrokerSettings, ClusterSettings, JournalSettings
from tests.patience import until

A, B, C, D = (Node(name, "127.0.0.1", 7471 + at, 7470 + at) for at, name in enumerate("abcd"))


def test_what_was_said_goes_before_settings_and_who_left_is_not_taken_up() -> None:
    moved = Node("b", "10.0.0.9", 1, 2)
    said = {"b": ServerAddress(moved), "c": ServerAddress(C, left=True), "d": ServerAddress(D)}
    assert merged([A, B, C], said, A) == [A, moved, D]


def test_ones_own_place_is_what_the_settings_say() -> None:
    assert merged([A], {"a": ServerAddress(Node("a", "elsewhere", 1, 2), left=True)}, A) == [A]


def test_what_is_known_outlives_the_process_and_damage_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_addresses(tmp_path) == {}
    write_addresses(tmp_path, [ServerAddress(A), ServerAddress(B, left=True)])
    assert read_addresses(tmp_path) == {"a": ServerAddress(A), "b": ServerAddress(B, left=True)}
    (tmp_path / FILE).write_text("[{")
    assert read_addresses(tmp_path) == {}
    assert "cannot be read" in caplog.text


def test_nodes_hear_of_who_joins_and_of_who_leaves(tmp_path: Path) -> None:
    facts = ProcessFacts()
    known: dict[str, list[Node]] = {}
    left: list[str] = []

    def listen(own: Node, settings: list[Node]) -> ServerList:
        return ServerList(
            facts.open(),
            own,
            settings,
            tmp_path / own.name,
            lambda nodes: known.update({own.name: nodes}),
            lambda: left.append(own.name),
        )

    first, last = listen(A, [A, B]), listen(D, [A, B, D])
    try:
        first.start()
        assert known["a"] == [A, B]
        last.start()
        until(lambda: known["a"] == [A, B, D], "a hears of d")
        facts.open().put(PREFIX + "d", ServerAddress(D, left=True).to_bytes())
        until(lambda: known["a"] == [A, B] and left == ["d"], "d has left")
        assert read_addresses(tmp_path / "d")["d"].left
    finally:
        first.close()
        last.close()
        facts.close()


def test_a_restart_knows_who_joined_and_who_left_does_not_start(tmp_path: Path) -> None:
    pytest.importorskip("nats")
    nodes = "a=127.0.0.1:7470,b=127.0.0.1:7480"
    settings = BrokerSettings(
        journal=JournalSettings(url=str(tmp_path)), cluster=ClusterSettings(node="a", nodes=nodes)
    )
    write_addresses(tmp_path / "jetstream", [ServerAddress(D)])
    server = server_of(settings)
    assert server is not None
    assert [node.name for node in server.nodes] == ["a", "b", "d"]
    write_addresses(tmp_path / "jetstream", [ServerAddress(A, left=True)])
    with pytest.raises(Refused, match="node a has left the cluster"):
        server_of(settings)
