"""An erasure in a cluster reaches what other brokers recorded, and their copies of the journal.

Not here: the wire between brokers (tests/unit/flight/test_peers.py); one broker
(tests/crash/test_erasure_kill.py), and servers (tests/integration/test_erasure_on_servers.py).
"""

from __future__ import annotations

import queue
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.calls import recorded_erasure
from dejaqueue.journal.records.interface import RecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, HistorySettings, JournalSettings
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.cluster.brokers import Cluster, patiently
from tests.cluster.test_message_history import TOPICS, NextDoor
from tests.crash.test_erasure_kill import files_with
from tests.patience import PATIENCE_SECONDS, until


class Copying(Cluster):
    """Brokers that record what happens, and keep copies of journals, each in its directory."""

    def __init__(self, root: Path, erase_ms_max: int = 0) -> None:
        super().__init__()
        self._root, self._erase_ms_max = root, erase_ms_max

    def settings(self, name: str) -> BrokerSettings:
        history = HistorySettings(directory=str(self._root / name / "history"))
        journal = JournalSettings(erase_ms_max=self._erase_ms_max)
        return BrokerSettings(history=history, journal=journal)

    def listen(self, name: str, broker: Broker) -> str:
        broker.peers = NextDoor(self.brokers)
        return super().listen(name, broker)

    def store(self, name: str, records: RecordStore) -> RecordJournalStore:
        return RecordJournalStore(records, mirror=self._root / name / "copies")


def erase(broker: Broker, topic: str, **choice: Any) -> dict[str, Any]:
    """To its end, as a client asks."""
    after: Any = None
    while True:
        answer = broker.call("erase", {"topic": topic, "after": after, **choice})
        after = answer["next"]
        if after is None:
            return answer


def send(broker: Broker, topic: str, marker: str) -> None:
    """A message with a marker in its key, group and payload, and one without."""
    batch = pa.record_batch(
        {
            "payload": pa.array([f"{marker} payload".encode(), b"stays"]),
            "key": pa.array([f"{marker}-key", "stays"]),
            "group": pa.array([f"{marker}-group", "others"]),
            "due": pa.array([broker.clock.now_ms() + 3_600_000] * 2),
        }
    )
    replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
    broker.open_write(WriteStream(topic)).submit(1, batch, replies.put)
    reply = replies.get(timeout=PATIENCE_SECONDS)
    if reply.error is not None:
        raise reply.error


def moved_topic(cluster: Copying, *, history: bool = True) -> tuple[str, Broker]:
    """A topic that `a` recorded and copied, and `b` serves now; the message is done there."""
    first = cluster.start("a")
    for topic in TOPICS:
        first.create_topic(Topic(topic, history=history))
        patiently(partial(send, first, topic, f"marker-{topic}"))
        if history:
            first.call("history_files", {"name": topic})  # has what is open finished
    second = cluster.start("b")
    until(lambda: any(second.serves(topic) for topic in TOPICS), "b serves something")
    topic = next(topic for topic in TOPICS if second.serves(topic))
    group = {"topic": topic, "group": f"marker-{topic}-group"}
    patiently(partial(second.call, "cancel_where", group))
    return topic, second


@pytest.mark.parametrize("by", ["keys", "group"])
def test_what_another_broker_recorded_and_copied_is_erased(tmp_path: Path, by: str) -> None:
    with Copying(tmp_path) as cluster:
        topic, second = moved_topic(cluster)
        marker = f"marker-{topic}-"
        assert any("history" in name for name in files_with(marker, tmp_path / "a"))
        assert any("copies" in name for name in files_with(f"marker-{topic} ", tmp_path / "a"))
        chosen = {"keys": [f"{marker}key"]} if by == "keys" else {"group": f"{marker}group"}
        answer = erase(second, topic, **chosen)
        assert (answer["silent"], answer["held"]) == ([], 0)
        assert answer["changes"] >= 2, "that it came, at a; that it was cancelled, at b"
        for text in (marker, f"marker-{topic} "):
            assert files_with(text, tmp_path) == []
        left = history(second, topic, 1)["changes"]
        assert [change["change"] for change in left] == ["enqueued"]
        other = next(one for one in TOPICS if one != topic)
        assert files_with(f"marker-{other}-", tmp_path) != []


def history(broker: Broker, topic: str, message_id: int) -> dict[str, Any]:
    return broker.call("message_history", {"topic": topic, "id": message_id})


def test_a_broker_that_does_not_answer_is_named__and_reached_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_erasure, "PEERS_US", 1_000_000)
    with Copying(tmp_path) as cluster:
        topic, second = moved_topic(cluster)
        told = second.peers.ask  # type: ignore[union-attr]
        with monkeypatch.context() as patch:
            patch.setattr(second.peers, "ask", lambda _url, *more: told("dejaq://nobody:1", *more))
            assert erase(second, topic, keys=[f"marker-{topic}-key"])["silent"] == ["a"]
        assert files_with(f"marker-{topic}-", tmp_path / "a") != []
        assert erase(second, topic, keys=[f"marker-{topic}-key"])["silent"] == []
        assert files_with(f"marker-{topic}-", tmp_path) == []


def test_what_is_done_is_gone_in_time_from_the_copies_of_all_brokers__with_a_bound(
    tmp_path: Path,
) -> None:
    with Copying(tmp_path, erase_ms_max=4_000) as cluster:
        topic, second = moved_topic(cluster, history=False)
        until(lambda: not files_with(f"marker-{topic} ", tmp_path), "no copy has it")
        other = next(one for one in TOPICS if not second.serves(one))
        assert files_with(f"marker-{other} ", tmp_path) != [], "what lives is copied still"
