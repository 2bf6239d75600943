"""`dejaq cluster`: how brokers and servers are shown, and how a change is followed to its end.

A client that answers as the test says. Not covered: real clusters (tests/cluster).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dejaqueue.cli import cluster as module
from dejaqueue.errors import Unavailable
from tests.cli.conftest import invoke

ALONE: dict[str, Any] = {"nodes": [], "servers": []}


def node(name: str, **more: Any) -> dict[str, Any]:
    usual = {"url": f"dejaq://{name}", "http_url": "", "version": "1", "leaving": False}
    return {"node": name, **usual, "clock": None} | more


def server(name: str, **more: Any) -> dict[str, Any]:
    usual = {"state": "online", "leads": 1, "copies": 2, "lag": 0, "bytes": 3, "version": "2"}
    return {"server": name, **usual, "meta_leader": False, "why": ""} | more


class Fake:
    """A broker: what it says of the cluster, and its answers one after the other."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = ALONE
        self.answers: list[Any] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def cluster(self, topic: str | None = None, *, servers: bool) -> dict[str, Any]:
        assert servers
        return self.found

    def _action(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((name, body))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake()

    @contextmanager
    def connect(url: str) -> Iterator[Fake]:
        yield fake

    monkeypatch.setattr(module, "connect", connect)
    monkeypatch.setattr(module, "LOOK_MS", 1)
    return fake


def rows_of(text: str) -> dict[str, list[str]]:
    """Words of each line by its first; of two that begin alike the upper one."""
    lines = reversed([line.split() for line in text.splitlines() if line.strip()])
    return {line[0]: line[1:] for line in lines}


def test_a_broker_that_is_alone_says_so(fake: Fake) -> None:
    found = invoke("cluster", "status")
    assert found.stdout == "this broker is alone: it serves every topic itself\n"


def test_brokers_are_shown_with_their_topics__and_topics_without_a_broker_are_counted(
    fake: Fake,
) -> None:
    fake.found = {
        "nodes": [node("a"), node("b", leaving=True)],
        "topics": [{"node": "a"}, {"node": "a"}, {"node": "b"}, {"node": ""}],
        "coordinator": "etcd",
        "astray": 5,
        "servers": [],
    }
    text = invoke("cluster", "status").stdout
    shown = rows_of(text)
    assert (shown["a"][0], shown["a"][-1]) == ("2", "serving")
    assert (shown["b"][0], shown["b"][-1]) == ("1", "leaving")
    assert "coordinator: etcd\n" in text
    assert "5 topics are astray" in text
    assert "1 topics have no owner" in text


def test_of_one_topic_its_owner_and_copies_are_shown_alone(fake: Fake) -> None:
    fake.found = ALONE | {"nodes": [node("a")], "topics": [{"topic": "t", "node": "a"}]}
    fake.found["copies"] = [{"server": "n1"}]
    shown = rows_of(invoke("cluster", "status", "t").stdout)
    assert shown == {"topic": ["node"], "t": ["a"], "server": [], "n1": []}
    fake.found["copies"] = []
    assert "server" not in invoke("cluster", "status", "t").stdout
    assert json.loads(invoke("cluster", "status", "t", "--json").stdout) == fake.found


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, "serving"),
        ({"leaving": True}, "leaving"),
        ({"short": True}, "disk is short, producers wait"),
        ({"clock": {"apart": True}}, "clock is off, takes nothing"),
        ({"clock": {"apart": True}, "leaving": True, "short": True}, "clock is off, lets go"),
        ({"clock": {"comparing": True}}, "compares its clock, takes nothing yet"),
    ],
)
def test_what_hinders_a_broker_most_is_its_state(more: dict[str, Any], state: str) -> None:
    assert module._state(node("a", **more)) == state


@pytest.mark.parametrize(
    ("least_ms", "most_ms", "shown"),
    [(None, None, "?"), (0, 0, "0 ms"), (0, 2, "+0 to +2 ms"), (-1_500, -3, "-1,500 to -3 ms")],
)
def test_a_clock_is_shown_between_bounds(
    least_ms: int | None, most_ms: int | None, shown: str
) -> None:
    assert module._clock({"ahead_ms_min": least_ms, "ahead_ms_max": most_ms}) == shown
    assert module._clock(None) == "?"


def test_servers_are_shown_with_their_leader_and_why_they_are_sick(fake: Fake) -> None:
    sick = server("n2", state="behind", why="n2 lacks 3 copies")
    fake.found = ALONE | {"servers": [server("n1", meta_leader=True), sick]}
    text = invoke("cluster", "status").stdout
    assert rows_of(text)["n2"][0] == "behind"
    assert "meta leader: n1\n" in text
    assert text.endswith("n2 lacks 3 copies\n")
    fake.found = ALONE | {"servers": [sick]}
    assert "meta leader: none\n" in invoke("cluster", "status").stdout


def progress(state: str, text: str) -> dict[str, str]:
    return {"state": state, "text": text}


def test_a_change_is_followed_until_it_is_done__each_word_once(fake: Fake) -> None:
    words = ["half", "half", "nearly"]
    fake.answers = [*(progress("working", word) for word in words), progress("done", "gone")]
    found = invoke("cluster", "remove", "n1")
    assert (found.exit_code, found.stdout) == (0, "half\nnearly\ngone\n")
    asked = ("node_progress", {"node": "n1", "change": "remove_node"})
    assert fake.calls == [("remove_node", {"node": "n1"}), asked, asked, asked]


def test_a_change_that_failed_is_an_error(fake: Fake) -> None:
    fake.answers = [progress("working", "half"), progress("failed", "no room")]
    found = invoke("cluster", "remove", "n1")
    assert found.exit_code != 0
    assert "no room" in found.stderr
    assert "no room" not in found.stdout


def test_a_broker_may_be_away_for_a_while__and_not_for_ever(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Unavailable("away")
    fake.answers = [progress("working", "half"), away, away, progress("done", "whole")]
    found = invoke("cluster", "repair", "n1", "--json")
    assert [json.loads(line) for line in found.stdout.splitlines()] == [progress("done", "whole")]
    monkeypatch.setattr(module, "AWAY_MS_MAX", -1)
    fake.answers = [progress("working", "half"), away]
    assert "away" in invoke("cluster", "repair", "n1").stderr


def test_without_a_name_those_that_are_sick_are_repaired(fake: Fake) -> None:
    sick = [server("n1", why="x"), server("n2"), server("n3", why="y")]
    fake.found = ALONE | {"servers": sick}
    fake.answers = [progress("done", "1"), progress("done", "2")]
    assert invoke("cluster", "repair").stdout == "1\n2\n"
    assert [body["node"] for _, body in fake.calls] == ["n1", "n3"]
    fake.found = ALONE | {"servers": [server("n2")]}
    assert invoke("cluster", "repair").stdout == "all copies that are known are whole\n"


def test_a_check_fails_unless_all_is_known(fake: Fake) -> None:
    lost = {"topic": "t", "journals": "t.1", "lack": "it has no journals"}
    fake.answers = [{"astray": []}, {"astray": [lost]}]
    assert "know the same topics" in invoke("cluster", "check").stdout
    found = invoke("cluster", "check", "--json")
    assert (found.exit_code, json.loads(found.stdout)) == (1, lost)
    assert [body for _, body in fake.calls] == [{}, {}]
