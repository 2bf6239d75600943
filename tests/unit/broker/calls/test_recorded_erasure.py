"""Erasure from history of several brokers: who is asked what, how often, and what it does.

Not here: which rows of a file go (tests/unit/broker/history/test_erasure.py); brokers of a cluster
(tests/cluster/test_erasure.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.broker.calls import recorded_erasure
from dejaqueue.broker.calls.erasure import parse_choice
from dejaqueue.broker.calls.recorded_erasure import (
    OtherBrokers,
    erase_copies,
    erase_everywhere,
    hear,
    unknown_letters,
)
from dejaqueue.broker.history.history import History
from dejaqueue.broker.shard.stored_erasure import ErasureChoice
from dejaqueue.clock import SteadyClock
from dejaqueue.engine.message_filter import Selection
from dejaqueue.errors import BadRequest, DejaQError, Refused, Unavailable
from dejaqueue.model import Topic
from dejaqueue.settings import HistorySettings
from tests.unit.broker.history.test_erasure import NONE, row, told, write

TOPIC = "orders"


class Stores:
    """A store that keeps no journals: which copies it was asked to delete."""

    is_remote = True

    def __init__(self) -> None:
        self.erased: list[tuple[str, int]] = []

    def erase_copy(self, topic: str, partition: int) -> None:
        self.erased.append((topic, partition))


class Brokers:
    """A broker, and others by name, each with its own history; `away` do not answer."""

    def __init__(self, root: Path, executor: ThreadPoolExecutor, names: str) -> None:
        self.away: dict[str, list[DejaQError]] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.brokers: dict[str, Any] = {}
        clock = SteadyClock()
        for name in names:
            (root / name).mkdir()
            history = History(root / name, HistorySettings(), clock, executor)
            self.brokers[name] = SimpleNamespace(
                history=history,
                clock=clock,
                store=Stores(),
                peers=self,
                topic=lambda _: None,
                cluster=lambda _, name=name: {
                    "node": name,
                    "nodes": [{"node": one, "url": one} for one in names],
                },
            )

    def __getitem__(self, name: str) -> Any:
        return self.brokers[name]

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        assert action == "ask_erasure"
        self.asked.append((url, body))
        answer: Future[dict[str, Any]] = Future()
        failures = self.away.get(url, [])
        if failures:
            answer.set_exception(failures.pop(0))
            return answer
        head = {name: value for name, value in body.items() if name != "content"}
        assert len(json.dumps(head)) < limits.CONTENT_HEAD_BYTES_MAX  # what one call may have
        try:
            answer.set_result(hear(self.brokers[url], body, parse_choice))
        except DejaQError as failure:
            answer.set_exception(failure)
        return answer


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    executor = ThreadPoolExecutor(1)
    yield Brokers(tmp_path, executor, "abc")
    executor.shutdown()


def erased(brokers: Brokers, choice: ErasureChoice, *known: int) -> tuple[Any, set[str]]:
    others = OtherBrokers(brokers["a"], TOPIC)
    outcome = erase_everywhere(
        others,
        choice,
        {"keys": list(choice.keys or ())} if choice.keys else {"group": "g"},
        known=np.array(known, dtype=np.int64),
        spared=NONE,
    )
    return outcome, others.silent


def test_a_life_in_pieces_goes_wherever_one_of_them_is(brokers: Brokers, tmp_path: Path) -> None:
    # b alone knows by which key it came; a and c tell what became of it.
    write(brokers["b"].history.files, 1, 5, [row("enqueued", 1, key="k"), row("enqueued", 2)])
    write(brokers["a"].history.files, 6, 7, [row("leased", 1), row("leased", 2)])
    write(brokers["c"].history.files, 8, 9, [row("acked", 1), row("acked", 2)])
    outcome, silent = erased(brokers, ErasureChoice(("k",)))
    assert (outcome.rows, silent) == (3, set())
    assert outcome.byte_count > 0
    left = [told(tmp_path / name) for name in "abc"]
    assert left == [[("leased", 2)], [("enqueued", 2)], [("acked", 2)]]


def test_a_thousand_long_keys_are_asked_for(brokers: Brokers, tmp_path: Path) -> None:
    write(brokers["b"].history.files, 1, 5, [row("enqueued", 1, key="k")])
    keys = tuple(f"{number}".rjust(256, "k") for number in range(1_000))
    outcome, silent = erased(brokers, ErasureChoice((*keys, "k")))
    assert (outcome.rows, silent) == (1, set())


def test_named_messages_go__nobody_is_asked_which_they_are(
    brokers: Brokers, tmp_path: Path
) -> None:
    write(brokers["b"].history.files, 1, 5, [row("enqueued", 1), row("enqueued", 2)])
    outcome, _ = erased(brokers, ErasureChoice(ids=(2,)), 1)
    assert outcome.rows == 2
    assert told(tmp_path / "b") == []
    assert [name for name, body in brokers.asked if body["step"] == "find"] == []


def test_spared_ones_stay__at_others_too(brokers: Brokers, tmp_path: Path) -> None:
    write(brokers["b"].history.files, 1, 5, [row("enqueued", 1, key="k")])
    others = OtherBrokers(brokers["a"], TOPIC)
    spared, asked = np.array([1]), {"keys": ["k"]}
    choice = ErasureChoice(("k",))
    assert erase_everywhere(others, choice, asked, known=NONE, spared=spared).rows == 0
    assert told(tmp_path / "b") == [("enqueued", 1)]


def test_who_is_busy_is_asked_again__who_is_away_or_refuses_is_named(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_erasure, "LOOK_US", 1_000)
    monkeypatch.setattr(recorded_erasure, "PEERS_US", 200_000)
    write(brokers["b"].history.files, 1, 5, [row("enqueued", 1)])
    brokers.away["b"] = [Unavailable("busy")] * 2
    brokers.away["c"] = [Refused("it knows no such call")]
    outcome, silent = erased(brokers, ErasureChoice(ids=(1,)))
    assert (outcome.rows, silent) == (1, {"c"})
    assert told(tmp_path / "b") == []
    brokers.away["b"] = [Unavailable("away")] * 10_000
    others = OtherBrokers(brokers["a"], TOPIC, {"c"})
    asked = len(brokers.asked)
    erase_copies(others, 7)
    assert others.silent == {"b", "c"}
    assert "c" not in [name for name, _ in brokers.asked[asked:]]


def test_copies_of_journals_on_a_server_go_everywhere(brokers: Brokers) -> None:
    erase_copies(OtherBrokers(brokers["a"], TOPIC), 7)
    assert [brokers[name].store.erased for name in "abc"] == [[], [(TOPIC, 7)], [(TOPIC, 7)]]
    brokers["a"].store.is_remote = False
    erase_copies(OtherBrokers(brokers["a"], TOPIC), 8)
    assert brokers["b"].store.erased == [(TOPIC, 7)]


def test_what_is_no_list_of_messages_is_refused(brokers: Brokers) -> None:
    right = {"topic": TOPIC, "partition": 0, "step": "erase", "content": b""}
    wrong = ({"content": b"x"}, {"partition": -1}, {"step": "look"}, {"step": "find"})
    for body in wrong:
        with pytest.raises(BadRequest):
            hear(brokers["b"], right | body, parse_choice)


def test_many_messages_are_named_in_several_calls(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_erasure, "ASKED_SEQUENCES", 2)
    write(brokers["b"].history.files, 1, 9, [row("enqueued", number) for number in range(6)])
    outcome, _ = erased(brokers, ErasureChoice(None, Selection(group="g")), 0, 1, 2, 3, 4)
    assert outcome.rows == 5
    assert told(tmp_path / "b") == [("enqueued", 5)]


def test_letters_that_another_broker_recorded_go_by_the_ids_of_their_messages(
    brokers: Brokers, tmp_path: Path
) -> None:
    came = [row("enqueued", 1, key="a:7@9"), row("enqueued", 2, key="a:8@9")]
    write(brokers["b"].history.files, 1, 5, came)
    write(brokers["c"].history.files, 6, 7, [row("acked", 1), row("acked", 2)])
    choice = ErasureChoice(ids=(7,), origin="a")
    outcome = erase_everywhere(
        OtherBrokers(brokers["a"], TOPIC),
        choice,
        {"ids": [7], "origin": "a"},
        known=NONE,
        spared=NONE,
    )
    assert outcome.rows == 2
    assert [told(tmp_path / name) for name in "bc"] == [[("enqueued", 2)], [("acked", 2)]]


def test_letters_of_a_key_are_told_to_be_left__where_there_is_history(brokers: Brokers) -> None:
    topic, by_key = Topic(TOPIC), ErasureChoice(("k",), origin="a")
    assert unknown_letters(brokers["a"], topic, by_key) == []
    assert len(unknown_letters(brokers["a"], replace(topic, history=True), by_key)) == 1
    write(brokers["a"].history.files, 1, 5, [row("enqueued", 1, key="a:7@9")])
    assert len(unknown_letters(brokers["a"], topic, by_key)) == 1
    for told_of in (ErasureChoice(("k",)), ErasureChoice(ids=(7,), origin="a")):
        assert unknown_letters(brokers["a"], topic, told_of) == []
