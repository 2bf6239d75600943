"""Covers: when there is a cut of a cluster, and when there is none: brokers that do not answer, or
went on by themselves, or that took something over; partitions that nobody has; a catalogue that
changes; turns that are given up, and less and less often.

Not covered: that it is a cut (tests/unit/broker/shard/test_turn_hold.py).
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from dejaqueue.backup.strands import LogCut
from dejaqueue.broker.backup import cluster_cuts
from dejaqueue.broker.backup.cluster_cuts import AGAIN_US_MAX, ClusterCuts
from dejaqueue.broker.shard.turn_hold import TurnHold
from dejaqueue.broker.topic.cluster_port import Owners
from dejaqueue.broker.topic.peers import TURN
from dejaqueue.catalogue.changes import DeletingTopic, MadeTopic, UsedTopic
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.errors import Unavailable
from dejaqueue.journal.segments.store import OWN_NAME
from dejaqueue.model import Topic
from dejaqueue.testing.virtual_clock import VirtualClock

JOURNAL: Any = object()


class World:
    """A broker "a" that takes cuts, and a broker "b", which is a hold and what it answers.

    Attributes:
        revisions: what the catalogue says each time that it is asked; the last one for ever.
        slots: who owns what each time that is asked, as revisions.
        says: what "b" answers in place of what it would, by step; None = nothing, ever.
    """

    node: Any = "a"

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.turn_hold = TurnHold(self.clock)
        self.other = TurnHold(self.clock)
        self.peers: Any = self
        self.state = CatalogueState()
        self.change(MadeTopic(Topic("t", partitions=2)))
        self.change(UsedTopic("t"))
        number = self.state.rows["t"].number
        self.publications = [
            self.turn_hold.open(number, 0, JOURNAL, 4),
            self.other.open(number, 1, JOURNAL, 6),
        ]
        self.names = [one.log for one in self.publications]
        self.revisions: list[int] = []
        self.slots, self.is_whole = [1], True
        self.says: dict[str, Any] = {}
        self.steps: list[str] = []
        self.cuts = ClusterCuts(self, lambda: self)  # type: ignore[arg-type, return-value]

    def change(self, change: Any) -> None:
        self.state.apply(change, self.state.revision + 1)

    # --- as a broker ---

    def catalogue_state(self) -> CatalogueState:
        return self.state.copy()

    # --- as what is agreed on ---

    @property
    def owners(self) -> Any:
        def found() -> Owners:
            revision = self.slots.pop(0) if len(self.slots) > 1 else self.slots[0]
            slots = {0: ("a", "s", 1), 1: ("b", "s", revision)}
            urls = {"a": "dejaq://a:1", "b": "dejaq://b:1", "c": "dejaq://c:1"}
            return Owners(urls, slots, self.is_whole)

        return found

    # --- as the way to "b" ---

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        assert (url, action) == ("dejaq://b:1", TURN)
        step = body["step"]
        self.steps.append(step)
        answer: Future[dict[str, Any]] = Future()
        if step == "begin":
            found = {"ends": self.other.begin(body["turn"]), "chain": body["chain"]}
        elif step == "end":
            found = {"kept": self.other.end(body["turn"])}
        else:
            found = {}
        said = self.says.get(step, found)
        if isinstance(said, Exception):
            answer.set_exception(said)
        elif said is not None:
            answer.set_result(found | said)
        return answer

    # --- as the catalogue's journal ---

    def tail(self) -> int:
        return self.revisions.pop(0) if self.revisions else self.state.revision

    def taken(self, last: dict[str, int] | None = None) -> LogCut | None:
        return self.cuts.taken(self, "aa", last or {})  # type: ignore[arg-type]

    def pause(self) -> None:
        self.clock.advance(us=AGAIN_US_MAX)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_cuts, "PATIENCE_SECONDS", 0.0)


@pytest.fixture
def world() -> World:
    return World()


def test_a_cut_says_where_all_ended__once(world: World) -> None:
    now_ms = world.clock.utc_ms()
    cut = world.taken()
    ends = {world.names[0]: 4, world.names[1]: 6, OWN_NAME: 2}
    assert cut == LogCut(now_ms - 1, ends, 3)
    assert not world.cuts.is_due
    assert world.steps == ["begin", "end"]
    world.clock.advance(ms=5)
    last = world.taken(ends)
    assert last == LogCut(now_ms + 4, ends, 3), "what came within the turn is of before this one"
    assert world.taken(ends) is None
    assert not world.cuts.is_due
    world.publications[1].published(7)
    again = world.taken(ends)
    assert again is not None
    assert again.ends[world.names[1]] == 7


def test_a_broker_that_is_alone_asks_nobody(world: World) -> None:
    world.node = None
    number = world.state.rows["t"].number
    world.turn_hold.open(number, 1, JOURNAL, 5)
    assert world.taken() == LogCut(
        world.clock.utc_ms() - 1, {world.names[0]: 4, world.names[1]: 5, OWN_NAME: 2}, 1
    )
    assert world.steps == []


def test_nobody_else_has_come_to_own_anything__or_it_is_none(world: World) -> None:
    world.slots = [1, 2]
    assert world.taken() is None
    assert world.cuts.is_due
    assert world.taken() is not None
    world.is_whole = False
    assert world.taken() is None


def test_a_catalogue_that_changes_meanwhile_makes_it_none(world: World) -> None:
    world.revisions = [2, 3]
    assert world.taken() is None
    assert world.taken() is not None
    world.revisions = [3]
    assert world.taken() is None, "what is known of the catalogue is of before"
    world.change(MadeTopic(Topic("u")))
    world.revisions = [2]
    assert world.taken() is None


def test_a_topic_that_is_being_closed_makes_it_none(world: World) -> None:
    world.change(DeletingTopic("t"))
    assert world.taken() is None


def test_a_partition_that_nobody_has_makes_it_none__and_is_told(world: World) -> None:
    world.publications[1].end()
    assert world.taken() is None
    assert world.cuts.is_missing
    world.other.open(world.state.rows["t"].number, 1, JOURNAL, 6)
    assert world.taken() is not None
    assert not world.cuts.is_missing


def test_a_partition_of_two_owners_makes_it_none(world: World) -> None:
    world.turn_hold.open(world.state.rows["t"].number, 1, JOURNAL, 5)
    assert world.taken() is None
    assert world.turn_hold.begin("x"), "answers go on"


@pytest.mark.parametrize("step", ["begin", "end"])
@pytest.mark.parametrize("says", [None, Unavailable("away")], ids=["silent", "away"])
def test_who_does_not_answer_makes_it_none__and_answers_go_on(
    world: World, step: str, says: Any
) -> None:
    world.says[step] = says
    assert world.taken() is None
    assert world.steps == ["begin", "end"]
    for hold in (world.turn_hold, world.other):
        hold.begin("x")
        hold.end("x")
    assert world.taken() is None
    assert world.steps == ["begin", "end"], "it is not tried again at once"
    del world.says[step]
    world.pause()
    assert world.taken() is not None
    assert world.steps == ["begin", "end", "look", "begin", "end"]


def test_who_went_on_by_itself_makes_it_none(world: World) -> None:
    world.says["end"] = {"kept": False}
    assert world.taken() is None
    assert world.cuts._failures == 1


def test_who_is_silent_is_looked_for_before_answers_are_kept__less_and_less_often(
    world: World,
) -> None:
    world.says = {"begin": None, "look": None}
    assert world.taken() is None
    for _ in range(20):
        world.clock.advance(us=100_000)
        world.taken()
    assert world.steps.count("begin") == 1
    assert world.steps.count("look") == 1
    world.pause()
    world.taken()
    assert world.steps.count("look") == 1, "one look is enough for who does not answer it"
    world.says = {}


def test_other_owners_are_asked_at_once(world: World) -> None:
    world.says = {"begin": None}
    assert world.taken() is None
    world.says = {}
    assert world.taken() is None
    world.slots = [2]
    assert world.taken() is not None
    assert world.steps == ["begin", "end", "look", "begin", "end"]


def test_another_turn_that_holds_answers_here_makes_it_none(world: World) -> None:
    world.turn_hold.begin("of another broker")
    assert world.taken() is None
    assert world.turn_hold.end("of another broker"), "that one is kept"


def test_another_chain_is_told(world: World) -> None:
    world.says["begin"] = {"chain": "bb"}
    world.taken()
    assert world.cuts.chain == "bb"
    world.says["begin"] = {"chain": ""}
    world.taken()
    assert world.cuts.chain == ""
