from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dejaqueue.clock import SystemClock
from dejaqueue.cluster.moving import Group, Mover
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.errors import Refused


def told(**more: Any) -> dict[str, Any]:
    follower = {"name": "b", "current": True, "lag": 0}
    return {"cluster": {"leader": "a", "replicas": [follower], **more}}


def test_the_leader_has_a_copy_too() -> None:
    group = Group.of("s", told())
    assert (group.leader, group.members, group.behind) == (
        "a",
        frozenset({"a", "b"}),
        frozenset(),
    )
    assert not group.is_moving


@pytest.mark.parametrize(
    "flaw",
    [{"current": False}, {"current": True, "offline": True}, {"current": True, "lag": 3}],
)
def test_who_does_not_have_everything_is_behind(flaw: dict[str, Any]) -> None:
    group = Group.of("s", told(replicas=[{"name": "b", **flaw}]))
    assert group.behind == {"b"}


def test_a_group_that_is_being_changed_says_so() -> None:
    assert Group.of("s", told(desired={"replicas": []})).is_moving


@pytest.mark.parametrize(
    ("version", "is_fine"), [("2.14.9", False), ("2.15.1", True), ("3.0", True)]
)
def test_older_servers_exchange_copies_in_one_step_and_are_refused(
    version: str, is_fine: bool
) -> None:
    connection = cast(NatsConnection, SimpleNamespace(server_version=version))
    mover = Mover(connection, lambda name: True, SystemClock())
    if is_fine:
        mover.check_version()
    else:
        with pytest.raises(Refused, match="2.15 or later, not 2.14.9"):
            mover.check_version()
