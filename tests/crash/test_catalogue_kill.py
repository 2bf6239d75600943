"""Covers: a broker that is alone is killed between any two steps of making and deleting topics.

The data directory is copied before and after each append to the catalogue, and each time a topic's
journals are let be made or are dropped: what a killed process leaves. A broker starts on each copy.
Not covered: a machine that loses power (crash_states.py: the catalogue's journal is as any other).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.catalogue.log import JOURNAL, CatalogueLog
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings
from tests.cluster.brokers import payloads, send

BEFORE_AND_AFTER = 2


def started(data: Path) -> Broker:
    broker = Broker(BrokerSettings(), store=SegmentStore(data, segment_bytes=1 << 16))
    broker.start()
    return broker


class Lives:
    """A broker at work, and what would be left of it at each moment.

    Attributes:
        moments: copies of its directory, each with the steps that were answered until then, and
            the one that was on its way.
        given: ids that it gave, by payload.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self._root, self.data = root, root / "data"
        self.moments: list[tuple[Path, int]] = []
        self.given: dict[str, int] = {}
        self._step = 0
        for owner, name in (
            (CatalogueLog, "_append"),
            (SegmentStore, "make"),
            (SegmentStore, "drop"),
        ):
            self._watch(patch, owner, name)

    def _watch(self, patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        call: Callable[..., Any] = getattr(owner, name)

        def watched(*given: Any, **named: Any) -> Any:
            self._copy()
            found = call(*given, **named)
            self._copy()
            return found

        patch.setattr(owner, name, watched)

    def _copy(self) -> None:
        copy = self._root / f"copy-{len(self.moments)}"
        shutil.copytree(self.data, copy)
        self.moments.append((copy, self._step))

    def run(self) -> None:
        """A topic is made, used, deleted, made again, used again and deleted again."""
        broker = started(self.data)
        for life in range(2):
            broker.create_topic(Topic("t", partitions=2))
            self._step += 1
            [self.given[str(life)]] = send(broker, "t", [str(life)])
            self._step += 1
            broker.delete_topic("t")
            self._step += 1
        broker.stop()


def test_a_broker_that_is_killed_between_steps_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        lives = Lives(tmp_path, patch)
        lives.run()
    # The catalogue's directory; and twice: made, used (directory and note), deleting, closed,
    # dropped, deleted.
    assert len(lives.moments) == (1 + 2 * 7) * BEFORE_AND_AFTER
    assert len(lives.given) == 2
    for copy, step in lives.moments:
        judge(copy, step, lives.given)


def judge(data: Path, step: int, given: dict[str, int]) -> None:
    """Start on what a kill left.

    Args:
        step: how many were answered: making, sending, deleting, and the same again.
        given: the id of each message.
    """
    place, life = (data.name, step), str(step // 3)
    broker = started(data)
    there = [topic.name for topic in broker.topics()]
    if step % 3 == 1:  # it is made, and nobody deletes it
        assert there == ["t"], place
    if there:
        assert set(payloads(broker, "t")) <= {life}, place
    broker.create_topic(Topic("t", partitions=2), exist_ok=True)
    [probe] = send(broker, "t", ["probe"])
    known = {given[one] for one in given if step >= 3 * int(one) + 2}
    assert probe not in known, place
    broker.delete_topic("t")
    broker.stop()
    assert [path.name for path in (data / "topics").iterdir()] == [JOURNAL], place
    broker = started(data)
    assert broker.topics() == [], place
    broker.stop()
