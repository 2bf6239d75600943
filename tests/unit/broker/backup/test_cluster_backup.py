"""Covers: what makes a backup of a cluster be taken again, and what ends it.

Not covered: that what comes of it is whole (tests/cluster/test_backup.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.broker.backup import cluster_backup as module
from dejaqueue.broker.backup.cluster_backup import ClusterBackup, ClusterCopy, ClusterCut, Order
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.cluster_port import Owners
from dejaqueue.errors import DejaQError, Refused, Unavailable
from tests.backups import client_of, started
from tests.patience import until

FAR = 3_600


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = started("memory:")
    with client_of(broker) as client:
        client.create_topic("a", partitions=2)
        client.send("a", b"1", delay=FAR)
    yield broker
    broker.stop()


class Turns:
    """A cluster of one broker, whose slots may move: an answer for each time that it is asked, the
    last one for ever."""

    node = "me"

    def __init__(self, *owners: Owners) -> None:
        self._owners = list(owners)

    def turn(self) -> Any:
        raise NotImplementedError

    def leads_cuts(self) -> bool:
        raise NotImplementedError

    def leave_cuts(self) -> None:
        raise NotImplementedError

    def owners(self) -> Owners:
        return self._owners.pop(0) if len(self._owners) > 1 else self._owners[0]


def owned(revision: int = 1, *, is_whole: bool = True, also: str = "") -> Owners:
    urls = {"me": "dejaq://me:1"} | ({also: f"dejaq://{also}:1"} if also else {})
    return Owners(urls, {0: ("me", "s", revision)}, is_whole)


def take(
    broker: Broker, turns: Turns, where: Path, until_s: float = 60, url: str = ""
) -> tuple[ClusterCut, ClusterCopy]:
    """What is given to `finish`; the monkeypatched pause makes tries follow at once."""
    found: list[tuple[ClusterCut, ClusterCopy]] = []

    def finish(cut: ClusterCut, copied: ClusterCopy) -> Any:
        found.append((cut, copied))
        return SimpleNamespace(logs={}, chain="")

    archive = Archive.open(str(where), make=True)
    taking = ClusterBackup(broker, turns, broker.backups.parts, lambda: None, lambda _: None)
    taking.taken(archive, Order(url or str(where), "0" * 16, "", replaces=True), finish)
    assert list(archive.bucket.objects("taking/")) == []
    return found[0]


def test_slots_without_a_broker_are_waited_for__and_those_that_moved_make_it_begin_again(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_US", 1_000)
    turns = Turns(
        owned(is_whole=False),
        owned(),  # the first try …
        owned(2),  # … has moved at its cut
        owned(2),  # the second …
        owned(2),
        owned(3),  # … has moved when it was copied
        owned(3),
    )
    cut, copied = take(broker, turns, tmp_path)
    assert [one.place for one in copied.partitions] == [
        f"a/{part.number}" for part in broker.runtime("a").partitions if part.loaded
    ]
    assert cut.pause_us < 5_000_000
    assert list(cut.catalogue.rows) == ["a"]
    parts = broker.runtime("a").partitions
    until(lambda: not any(part.core.is_held for part in parts), "all is let go of")


def test_what_is_served_by_nobody__or_twice_is_no_cut(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS_MAX", 0.0)
    hear = broker.backups.parts.hear

    def lacking(body: dict[str, Any]) -> dict[str, Any]:
        answer = hear(body)
        return answer | {"names": []} if body["step"] == "cut" else answer

    monkeypatch.setattr(broker.backups.parts, "hear", lacking)
    with pytest.raises(Unavailable, match="between two owners"):
        take(broker, Turns(owned()), tmp_path)


def test_who_does_not_answer_has_it_taken_again_for_a_while_only(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS_MAX", 0.0)
    with pytest.raises(Unavailable, match="no way to other brokers"):
        take(broker, Turns(owned(also="other")), tmp_path)
    with pytest.raises(Unavailable, match="have no broker"):
        take(broker, Turns(owned(is_whole=False)), tmp_path)


def test_what_does_not_pass_ends_it__unless_a_slot_moved(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    Archive.open(str(elsewhere), make=True)
    with pytest.raises(Refused, match="node me: .*is another place here"):
        take(broker, Turns(owned()), tmp_path / "here", url=str(elsewhere))
    monkeypatch.setattr(module, "AGAIN_SECONDS_MAX", 0.0)
    with pytest.raises(DejaQError, match="went to other brokers meanwhile"):
        take(
            broker,
            Turns(owned(), owned(), owned(2)),
            tmp_path / "here",
            url=str(elsewhere),
        )
