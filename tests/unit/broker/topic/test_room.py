"""Covers: who is woken after a start and when the disk is full. That room is given back then:
tests/integration/test_room.py."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from dejaqueue.broker.topic.room import ASK_US, OPEN_BYTES, Room
from dejaqueue.errors import TopicUnknown
from dejaqueue.model import Topic, TopicKind


class Partitions(list[Any]):
    """What Room asks of the partitions of a topic."""

    @property
    def numbers(self) -> range:
        return range(len(self))


class Runtime:
    """What Room asks of a topic."""

    def __init__(
        self, name: str, kind: TopicKind = TopicKind.TIMELINE, partitions: int = 2
    ) -> None:
        self.topic = SimpleNamespace(name=name, kind=kind)
        self.journals = name
        self.rung: list[int] = []
        self.partitions = Partitions(
            SimpleNamespace(number=n, loaded=bool(n), ring=lambda n=n: self.rung.append(n))
            for n in range(partitions)
        )
        self.looks: list[tuple[int, Future[None]]] = []

    def ring_all(self) -> None:
        self.rung += [-1]

    def look(self, number: int, _: object) -> Future[None]:
        self.looks.append((number, Future()))
        return self.looks[-1][1]


def room_of(*runtimes: Runtime, now_us: list[int]) -> Room:
    clock: Any = SimpleNamespace(now_us=lambda: now_us[0])
    by_name: Any = {runtime.topic.name: runtime for runtime in runtimes}
    return Room(lambda: runtimes, by_name.__getitem__, clock)  # type: ignore[arg-type,return-value]


def test_after_a_start_large_journals_are_read_one_after_the_other() -> None:
    one, other = Runtime("one"), Runtime("other", TopicKind.CRON)
    sizes = {("one", 0): OPEN_BYTES + 1, ("one", 1): 9 * OPEN_BYTES, ("other", 0): OPEN_BYTES}
    store: Any = SimpleNamespace(taken_bytes=lambda *of: sizes.get(of, 0))
    topics = [Topic("one", partitions=2), Topic("other", kind=TopicKind.CRON)]
    room_of(one, other, now_us=[0]).begin(store, topics)
    assert other.rung == [-1]
    assert [number for number, _ in one.looks] == [0]
    one.looks[0][1].set_exception(OSError("it cannot be read"))
    assert [number for number, _ in one.looks] == [0, 1]
    one.looks[1][1].set_result(None)
    assert len(one.looks) == 2
    assert other.looks == []


def test_where_a_bound_of_erasure_is_set_all_are_read__on_a_server_unasked_what_they_take() -> None:
    sizes = {("one", 1): 7}
    for is_remote, read in ((False, [1]), (True, [0, 1])):
        one = Runtime("one")
        store: Any = SimpleNamespace(
            taken_bytes=lambda *of, remote=is_remote: 0 if remote else sizes.get(of, 0),
            is_remote=is_remote,
        )
        room = room_of(one, now_us=[0])
        room.begin(store, [Topic("one", partitions=2)], reads_all=True)
        for looked in read:
            assert one.looks[-1][0] == looked
            one.looks[-1][1].set_result(None)
        assert [number for number, _ in one.looks] == read


def test_of_a_shared_log_those_that_are_read_already_and_take_little_are_left_alone() -> None:
    one = Runtime("one", partitions=3)
    sizes = {("one", number): OPEN_BYTES + 1 for number in range(3)}
    store: Any = SimpleNamespace(taken_bytes=lambda *of: sizes.get(of, 0))
    room_of(one, now_us=[0]).begin(store, [Topic("one", partitions=3)])
    sizes["one", 1] = 5  # the first one was read, so the log knows what is whose
    one.looks[0][1].set_result(None)
    assert [number for number, _ in one.looks] == [0, 2]


def test_who_keeps_room_of_a_shared_log_is_rung__also_if_nobody_used_it_since_the_start() -> None:
    served, unused = Runtime("served"), Runtime("unused")
    serve: Any = {"unused": unused}
    clock: Any = SimpleNamespace(now_us=lambda: 0)

    def begin(name: str) -> Any:
        if name not in serve:
            raise TopicUnknown(name)
        return serve[name]

    store: Any = SimpleNamespace(taken_bytes=lambda *_: 0)
    topics: Any = [served]
    Room(lambda: topics, begin, clock).begin(store, [])
    store.ask([("served", 1), ("deleted", 0), ("unused", 0), ("served", 7)])
    assert (served.rung, unused.rung) == ([1], [0])


def test_when_room_is_wanted_those_that_were_read_are_asked__once_a_second() -> None:
    now_us = [5]
    one = Runtime("one")
    room = room_of(one, now_us=now_us)
    for _ in range(3):
        room.want()
    assert one.rung == [1]
    assert room.wanted_count == 1
    now_us[0] += ASK_US
    room.want()
    assert one.rung == [1, 1]
    now_us[0] -= 100 * ASK_US  # the clock steps back
    room.want()
    assert room.wanted_count == 3
