"""Covers: the steps of a broker's part in a backup of its cluster, in and out of their order; and
what becomes of what it holds when nobody asks any more.

Not covered: several brokers (test_cluster_backup.py, tests/cluster/test_backup.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.broker.backup import part as module
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.model import Topic
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


def step(broker: Broker, name: str, backup: str = "x", **more: Any) -> dict[str, Any]:
    return broker.call("ask_backup", {"backup": backup, "step": name, **more})


def held(broker: Broker) -> list[bool]:
    return [part.core.is_held for part in broker.runtime("a").partitions if part.loaded]


def reached(broker: Broker, state: str, backup: str = "x") -> dict[str, Any]:
    until(lambda: step(broker, "look", backup)["state"] == state, state)
    return step(broker, "look", backup)


def test_what_is_held_is_noted_and_copied__and_then_let_go_of(
    broker: Broker, tmp_path: Path
) -> None:
    archive = Archive.open(str(tmp_path), make=True)
    archive.take("x")
    step(broker, "hold")
    reached(broker, "held")
    assert any(held(broker))
    broker.create_topic(Topic("b"))
    with client_of(broker) as client:
        client.send("b", b"2", delay=FAR)
    step(broker, "stop")
    noted = step(broker, "cut")
    assert (noted["is_whole"], noted["names"]) == (True, ["a", "b"])
    with client_of(broker) as client:  # workers go on
        client.send("b", b"3", delay=FAR)
    order: dict[str, Any] = {"url": str(tmp_path), "store": "0" * 16, "parent": "", "full": True}
    step(broker, "copy", **order)
    found = reached(broker, "copied")
    assert found["partitions"] == found["done"] == 2
    assert any(held(broker))
    step(broker, "end")
    until(lambda: not any(held(broker)), "it is let go of")
    assert step(broker, "end", "another") == {}


def test_the_end_of_a_backup_is_heard_with_all_that_it_says(broker: Broker) -> None:
    """Another broker's call with a field that the table of calls lacks would be refused unseen."""
    step(broker, "hold")
    reached(broker, "held")
    step(broker, "stop")
    step(broker, "cut")
    assert step(broker, "done", logs={"3": 7}, chain="00000000000000aa") == {}
    step(broker, "end")


def test_steps_out_of_order_are_refused(broker: Broker, tmp_path: Path) -> None:
    for wrong in ({"backup": ""}, {"backup": 7}, {"step": "none"}, {"step": "hear"}):
        with pytest.raises(BadRequest):
            broker.call("ask_backup", {"backup": "x", "step": "hold"} | wrong)
    with pytest.raises(Unavailable, match="nothing is held here for x"):
        step(broker, "stop")
    step(broker, "hold")
    reached(broker, "held")
    with pytest.raises(BadRequest, match="url"):
        step(broker, "copy")
    with pytest.raises(Unavailable, match="nothing was noted"):
        step(broker, "copy", url=str(tmp_path), store="0" * 16)
    assert step(broker, "cut") == {"is_whole": False}  # nobody had stopped
    step(broker, "end")
    with pytest.raises(Unavailable, match="its part here is"):
        step(broker, "stop")


def test_a_place_that_is_not_the_same_for_all_is_refused(broker: Broker, tmp_path: Path) -> None:
    Archive.open(str(tmp_path), make=True)
    step(broker, "hold")
    reached(broker, "held")
    step(broker, "stop")
    step(broker, "cut")
    step(broker, "copy", url=str(tmp_path), store="0" * 16)
    found = reached(broker, "failed")
    assert "is another place here" in found["error"]
    assert not found["may_pass"]
    until(lambda: not any(held(broker)), "it is let go of")


def test_a_worker_that_hangs_fails_the_stop__and_the_others_go_on(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS_MAX", 0.1)
    step(broker, "hold")
    reached(broker, "held")
    goes_on = threading.Event()

    def hang() -> None:
        goes_on.wait()

    broker.workers[0].call(hang)
    with pytest.raises(Unavailable, match="a worker hangs"):
        step(broker, "stop")
    goes_on.set()

    def stops() -> bool:
        try:
            step(broker, "stop")
        except Unavailable:
            return False
        return True

    until(stops, "it stops")
    step(broker, "go")
    assert step(broker, "cut") == {"is_whole": False}
    with client_of(broker) as client:
        client.send("a", b"2", delay=FAR)


def test_who_asks_no_more_is_taken_for_dead__and_so_is_who_began_before(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    step(broker, "hold", "first")
    reached(broker, "held", "first")
    monkeypatch.setattr(module, "SILENT_SECONDS_MAX", 0.2)
    step(broker, "hold", "second")
    with pytest.raises(Unavailable, match="nothing is held here for first"):
        step(broker, "look", "first")
    until(lambda: not any(held(broker)), "the second one is silent")
