"""Covers: the order in which a slot is handed over, and that one which hangs holds no other.

Not covered: what becomes of topics (tests/unit/broker/topic/test_handing_over.py), and rounds
(test_node.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import cast

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.threads import Threads
from dejaqueue.clock import Clock, SteadyClock
from dejaqueue.cluster.handing_over import CLOSE_SECONDS_MAX, HandOvers
from dejaqueue.errors import Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import PATIENCE_SECONDS, until

TOPICS = {1: ["orders", "orders.dead"], 2: ["bills"], 3: []}


class Site:
    """A broker that notes what it is asked; a topic in `hangs` is not closed before `goes_on`."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.hangs: set[str] = set()
        self.goes_on = threading.Event()
        self.released = {slot: threading.Event() for slot in TOPICS}
        self.is_away = False
        self.ask_to_read: Callable[[str, str], Future[dict[str, bool]]] | None = None
        self.clock: Clock = SteadyClock()
        self.hand_overs = HandOvers(
            Threads(), TOPICS.__getitem__, self.release, lambda: None, self.clock
        )

    def wait(self, seconds: float = PATIENCE_SECONDS) -> None:
        self.hand_overs.wait(self.clock.now_us() + int(seconds * 1e6))

    @property
    def broker(self) -> Broker:
        return cast("Broker", self)

    def prepare_to_give(self, name: str) -> None:
        slot = next(slot for slot, names in TOPICS.items() if name in names)
        assert not self.hand_overs.is_closing(slot)
        self.noted.append(f"{name} prepared")

    def give(self, name: str, *, drain: bool, seconds_max: float | None = None) -> None:
        assert drain
        assert seconds_max == CLOSE_SECONDS_MAX
        slot = next(slot for slot, names in TOPICS.items() if name in names)
        assert self.hand_overs.is_closing(slot)
        if name in self.hangs:
            assert self.goes_on.wait(PATIENCE_SECONDS)
        self.noted.append(f"{name} given")

    def release(self, slot: int, revision: int) -> None:
        if self.is_away:
            raise Unavailable("the coordinator is away", 100)
        self.noted.append(f"{slot} released at {revision}")
        self.released[slot].set()


def test_snapshots_are_taken_first__and_the_slot_is_released_last() -> None:
    site = Site()
    site.hand_overs.begin(site.broker, {1: 7})
    site.wait()
    names = TOPICS[1]
    assert sorted(site.noted[:2]) == [f"{name} prepared" for name in names]
    assert sorted(site.noted[2:4]) == [f"{name} given" for name in names]
    assert site.noted[4:] == ["1 released at 7"]
    assert not site.hand_overs.is_closing(1)
    site.hand_overs.close()


def test_the_next_owner_has_read_it_before_it_is_closed() -> None:
    site = Site()
    asked: list[str] = []

    def ask(url: str, name: str) -> Future[dict[str, bool]]:
        assert url == "dejaq://b:1"
        assert not site.hand_overs.is_closing(1)
        asked.append(name)
        answer: Future[dict[str, bool]] = Future()
        answer.set_result({"is_read": asked.count(name) == 2})
        site.noted.append("asked")
        return answer

    site.ask_to_read = ask
    site.hand_overs.begin(site.broker, {1: 7, 3: 8}, {1: "dejaq://b:1"})
    site.wait()
    assert sorted(asked) == sorted(2 * TOPICS[1])
    notes = [note for note in site.noted if note != "3 released at 8"]
    assert notes[2:6] == ["asked"] * 4
    assert notes[-1] == "1 released at 7"
    site.hand_overs.close()


def test_a_slot_that_hangs_holds_no_other() -> None:
    site = Site()
    site.hangs = {"bills"}
    site.hand_overs.begin(site.broker, {2: 1, 1: 1, 3: 1})
    assert site.released[1].wait(PATIENCE_SECONDS)
    assert site.released[3].wait(PATIENCE_SECONDS)
    assert not site.released[2].is_set()
    site.wait(0)  # not for ever
    site.goes_on.set()
    assert site.released[2].wait(PATIENCE_SECONDS)
    site.hand_overs.close()


class Hanging:
    """A hand-over that does not end."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.waited: list[float] = []

    def result(self, seconds: float) -> None:
        self.waited.append(seconds)
        self._clock.advance(ms=round(seconds * 1_000))
        raise TimeoutError


def test_several_that_hang_are_waited_for_together() -> None:
    clock = VirtualClock()
    hand_overs = HandOvers(Threads(), TOPICS.__getitem__, lambda *_: None, lambda: None, clock)
    hanging = [Hanging(clock) for _ in range(3)]
    hand_overs._begun = cast("list[Future[None]]", hanging)
    hand_overs.wait(clock.now_us() + 2_000_000)
    assert [one.waited for one in hanging] == [[2.0], [0.0], [0.0]]


def test_a_slot_is_handed_over_once__unless_it_was_this_brokers_again() -> None:
    site = Site()
    for revision in (4, 4, 9):
        site.hand_overs.begin(site.broker, {3: revision})
        site.wait()
        assert site.hand_overs.has(3, revision)
    assert site.noted == ["3 released at 4", "3 released at 9"]
    assert not site.hand_overs.has(3, 4)
    site.hand_overs.close()


def test_what_could_not_be_released_is_begun_anew() -> None:
    site = Site()
    site.is_away = True
    site.hand_overs.begin(site.broker, {3: 4})
    site.wait()
    assert site.hand_overs.has(3, 4)
    site.hand_overs.look_again()
    assert not site.hand_overs.has(3, 4)
    site.is_away = False
    site.hand_overs.begin(site.broker, {3: 4})
    site.wait()
    assert site.noted == ["3 released at 4"]
    site.hand_overs.close()


def test_a_coordinator_that_went_back_may_say_again_that_a_slot_is_ours() -> None:
    site = Site()
    site.hangs = {"bills"}
    site.hand_overs.begin(site.broker, {2: 1, 3: 4})
    assert site.released[3].wait(PATIENCE_SECONDS)
    until(lambda: len(site.hand_overs._under_way) == 1, "the other one is done")
    assert site.hand_overs.has(3, 4)  # as long as the facts are those from before
    site.hand_overs.look_again()
    assert not site.hand_overs.has(3, 4)
    assert site.hand_overs.has(2, 1)
    site.goes_on.set()
    site.hand_overs.close()
