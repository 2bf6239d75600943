"""The fixture of the rules on several brokers: asked at the door of one that has not the topic.

What a test does is the same, word by word: sends, calls and deliveries go by Flight to a broker
that passes them on, a topic of several partitions is served by all brokers, a restart is a
hand-over, and a crash the death of whoever serves the topic.
Not covered: what the wire has no call for; such tests have the mark `one_broker`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dejaqueue.errors import DejaQError, Elsewhere
from dejaqueue.model import Topic
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.door import Door, NotAtADoor

BROKERS = 3


class Topology(Protocol):
    """Several brokers; see three_brokers.py for what each does."""

    @property
    def clock(self) -> VirtualClock: ...
    @property
    def look_inside(self) -> Callable[[str], Any] | None: ...

    def url_apart(self, topic: str) -> str: ...
    def settle_down(self) -> None: ...
    def advance(self, ms: int) -> None: ...
    def arrival(self, seconds: float) -> DejaQError | None: ...
    def clean(self) -> None: ...
    def hand_over(self, topic: str) -> None: ...
    def kill(self, topic: str) -> None: ...
    def stop(self) -> None: ...


class ClusterFixture(BrokerFixture):
    """Several brokers whose time is moved by hand, and one topic.

    Args:
        topology: the brokers, without topics.
        topic: settings of the topic.
    """

    def __init__(self, topology: Topology, **topic: Any) -> None:
        for name in ("snapshot_entries", "snapshot_interval_ms"):  # nobody outside sees them
            topic.pop(name, None)
        if "payloads" in topic:
            raise NotAtADoor("a payload store of its own")
        self._topology = topology
        self.clock = topology.clock
        self.topic_settings = topic
        if "spread" not in topic and topic.get("partitions", 1) % BROKERS == 0:
            topic = topic | {"spread": BROKERS}
        elif "spread" not in topic and topic.get("partitions", 1) % 2 == 0:
            topic = topic | {"spread": 2}
        topology.clean()
        anybody = Door(topology.url_apart(""))
        anybody.create_topic(Topic(TOPIC, **topic), exist_ok=True)
        anybody.close()
        self._open()

    def _open(self) -> None:
        self.door = Door(self._topology.url_apart(TOPIC), self._topology.look_inside)
        self.broker = self.door  # type: ignore[assignment]  # as far as tests go

    @property
    def path(self) -> Any:  # type: ignore[override]
        raise NotAtADoor("files of a broker")

    def settle_down(self) -> None:
        self._topology.settle_down()
        self.door.arrive()

    def advance(self, ms: int) -> None:
        self._topology.advance(ms)
        self.settle_down()

    def _arrival(self) -> DejaQError | None:
        while isinstance(error := self._topology.arrival(PATIENCE_SECONDS), Elsewhere):
            pass  # the carrier was told so by this broker, and goes on to that one
        return error

    def restart(self) -> None:
        """Have whoever serves the topic hand it over."""
        self._topology.hand_over(TOPIC)
        self._again()

    def crash(self) -> None:
        """Have whoever serves the topic die."""
        self._topology.kill(TOPIC)
        self._again()

    def _again(self) -> None:
        self.door.close()
        self._open()

    def wait_for_snapshots(self) -> None:
        """Nobody outside sees them."""

    def next_position(self) -> int:
        raise NotAtADoor("a position of a journal")

    def state_hashes(self) -> list[str]:
        """What can be seen of the state from outside, in place of its hash."""
        states = ("scheduled", "ready", "leased", "staged")
        return [repr(self.peek(state=state, limit=1_000)) for state in states]

    def stop(self) -> None:
        """Delete what there is: the brokers go on."""
        for topic in self.door.topics():
            self.door.delete_topic(topic.name)
        self.door.close()
