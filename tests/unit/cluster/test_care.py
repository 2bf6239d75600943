from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dejaqueue.cluster import members
from dejaqueue.cluster.care import Care, peer_mark
from dejaqueue.cluster.jetstream import JetStreamServer
from dejaqueue.cluster.jetstream_settings import Node
from dejaqueue.cluster.members import Member
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import BadRequest, Elsewhere, Refused
from dejaqueue.journal.records.nats.store import NatsRecordStore


def care(names: str, *, runs_servers: bool = True) -> Care:
    """Of node a, while the brokers of these names are there."""
    facts = ProcessFacts().open()
    for name in names:
        member = Member(name, "s", f"dejaq://{name}:1", f"http://{name}:2", "1")
        facts.put(members.PREFIX + name, member.to_bytes())
    nodes = tuple(Node(name, "127.0.0.1", 1, 2) for name in names)
    server = cast(JetStreamServer, SimpleNamespace(nodes=nodes)) if runs_servers else None
    return Care("a", facts, cast(NatsRecordStore, SimpleNamespace()), server)


def begin(one: Care, name: str, node: Any) -> dict[str, Any]:
    return one.act(name, {"node": node, "start": True})


def test_a_server_is_called_by_a_mark_of_its_name() -> None:
    # As a server's log shows it.
    assert peer_mark("b") == "0ZkM0vRC"


def test_who_is_to_leave_has_another_do_it() -> None:
    with pytest.raises(Elsewhere, match="done by b") as told:
        begin(care("abcd"), "remove_node", "a")
    assert told.value.url == "dejaq://b:1"
    with pytest.raises(Refused, match="no other broker"):
        begin(care("a"), "remove_node", "a")


def test_three_stay() -> None:
    with pytest.raises(Refused, match="let another one join first"):
        begin(care("abc"), "remove_node", "c")


@pytest.mark.parametrize("node", ["x", "", None, 3])
def test_a_node_that_is_none_is_named(node: Any) -> None:
    with pytest.raises(BadRequest, match="node"):
        begin(care("abcd"), "remove_node", node)


def test_a_node_is_emptied_by_its_own_broker() -> None:
    with pytest.raises(Elsewhere, match="done by b"):
        begin(care("abc"), "repair_node", "b")
    with pytest.raises(BadRequest, match="whose broker is there"):
        begin(care("abc"), "repair_node", "x")


def test_servers_of_the_operator_are_removed_by_him() -> None:
    with pytest.raises(Refused, match="not run by its brokers"):
        begin(care("abcd", runs_servers=False), "remove_node", "b")


def test_who_asks_how_it_goes_is_told_where_it_is_done() -> None:
    one = care("abc")
    assert one.act("remove_node", {"node": "b"})["state"] == ""
    with pytest.raises(Elsewhere):
        one.act("repair_node", {"node": "b"})
