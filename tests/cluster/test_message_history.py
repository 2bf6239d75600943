"""What happened to a message whose topic went from one broker to another is told as a whole.

Not covered: the wire between brokers (tests/unit/flight/test_peers.py), and what one broker
recorded (tests/unit/broker/calls/test_message_history.py).
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, HistorySettings
from tests.cluster.brokers import Cluster, patiently, send
from tests.patience import until

TOPICS = [f"topic-{number}" for number in range(8)]


class NextDoor:
    """The way to other brokers, which are in this process."""

    def __init__(self, brokers: dict[str, Broker]) -> None:
        self._brokers = brokers

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        answer: Future[dict[str, Any]] = Future()
        try:
            answer.set_result(self._brokers[url.split("/")[2].split(":")[0]].call(action, body))
        except KeyError:
            answer.set_exception(Unavailable("it does not answer"))
        except DejaQError as error:
            answer.set_exception(error)
        return answer


class Recording(Cluster):
    """Brokers that record what happens, each in a directory of its own."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def settings(self, name: str) -> BrokerSettings:
        return BrokerSettings(history=HistorySettings(directory=str(self._root / name)))

    def listen(self, name: str, broker: Broker) -> str:
        broker.peers = NextDoor(self.brokers)
        return super().listen(name, broker)


def life(broker: Broker, topic: str) -> dict[str, Any]:
    return broker.call("message_history", {"topic": topic, "id": 0})


def words(answer: dict[str, Any]) -> list[str]:
    return [change["change"] for change in answer["changes"]]


def test_a_life_in_two_brokers_is_one__and_who_is_away_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Recording(tmp_path) as cluster:
        first = cluster.start("a")
        for topic in TOPICS:
            first.create_topic(Topic(topic, history=True))
            patiently(partial(send, first, topic, ["x"]))
            assert words(life(first, topic)) == ["enqueued"]
        second = cluster.start("b")
        until(lambda: any(second.serves(topic) for topic in TOPICS), "b serves something")
        moved = next(topic for topic in TOPICS if second.serves(topic))
        patiently(partial(second.call, "cancel_where", {"topic": moved}))
        answer = life(second, moved)
        assert (words(answer), answer["gaps"]) == (["enqueued", "cancelled"], [])
        assert answer["silent"] == []
        told = second.peers.ask  # type: ignore[union-attr]
        monkeypatch.setattr(
            second.peers, "ask", lambda _url, *more: told("dejaq://nobody:1", *more)
        )
        alone = life(second, moved)
        assert alone["silent"] == ["a"]
        assert words(alone)[-1] == "cancelled"
