import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dejaqueue.clock import SystemClock
from dejaqueue.connections.nats.monitor import Copy, ServerReport
from dejaqueue.errors import Unavailable
from dejaqueue.journal.records.nats.watch import READ_MS, SURE_MS, CopyWatch, SickCopy, find_sick
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import PATIENCE_SECONDS

STREAM = "q-records-t-0"


def copy(server: str, messages: int = 10, leader: str = "a", **more: Any) -> Copy:
    first, last = more.get("first", 1), more.get("last", 10)
    followers = ("b", "c") if server == leader else ()
    stream = more.get("stream", STREAM)
    return Copy(server, stream, messages, first, last, 0, leader, followers, (0, 0))


def reports(*copies: Copy, off: Sequence[str] = (), run: str = "1") -> list[ServerReport]:
    servers = dict.fromkeys(one.server for one in copies) | dict.fromkeys(off)
    return [
        ServerReport(
            server,
            "2.15",
            True,
            server in off,
            tuple(one for one in copies if one.server == server),
            "a",
            run,
        )
        for server in servers
    ]


def sick(*copies: Copy, off: Sequence[str] = ()) -> list[tuple[str, str, bool]]:
    return [
        (one.copy.server, one.copy.text.split(" ")[0], one.is_sure)
        for one in find_sick(reports(*copies, off=off), lambda name: name.startswith("q-"))
    ]


def test_whole_copies_are_not_sick() -> None:
    assert sick(copy("a"), copy("b"), copy("c")) == []
    assert sick(copy("a", 0, first=11), copy("b", 0, first=11), copy("c", 0, first=11)) == []
    # One that is behind.
    assert sick(copy("a"), copy("b"), copy("c", 7, last=7)) == []


def test_records_that_are_gone_show_beside_another_copy() -> None:
    assert sick(copy("a"), copy("b", 8), copy("c")) == [("b", "it", False)]
    assert sick(copy("a"), copy("b", 4, first=7), copy("c")) == [("b", "it", False)]


def test_gaps_that_all_copies_have_are_fine() -> None:
    assert sick(copy("a", 8), copy("b", 8), copy("c", 8)) == []


def test_a_copy_or_a_server_that_is_not_there_is_sick() -> None:
    assert sick(copy("a"), copy("b")) == [("c", "the", False)]
    assert sick(copy("a"), copy("b"), copy("c", stream="other")) == [("c", "it", False)]
    assert ("c", "JetStream", False) in sick(copy("a"), copy("b"), off=["c"])


class FakeServers:
    """A monitor and a connection that remember what they were asked."""

    def __init__(self) -> None:
        self.told: list[ServerReport] = []
        self.asked: list[tuple[str, Any]] = []

    def reports(self) -> list[ServerReport]:
        return self.told

    def api(self, name: str, asked: object = None) -> dict[str, Any]:
        self.asked.append((name, asked))
        return {}

    def close(self) -> None:
        pass


def make_watch() -> tuple[CopyWatch, FakeServers, VirtualClock, list[list[SickCopy]]]:
    servers, clock, said = FakeServers(), VirtualClock(), []  # type: ignore[var-annotated]
    watch = CopyWatch(servers, servers, "q", "q-records-", clock, said.append)  # type: ignore[arg-type]
    return watch, servers, clock, said


def test_a_sick_leader_is_named_and_leads_no_more() -> None:
    watch, servers, clock, said = make_watch()
    servers.told = reports(copy("a", 8), copy("b"), copy("c"))
    assert watch.check() == []
    clock.advance(ms=SURE_MS)
    assert [one.server for one in watch.check()] == ["a"]
    assert servers.asked == [
        (f"STREAM.LEADER.STEPDOWN.{STREAM}", {"placement": {"preferred": "b"}})
    ]
    servers.told = reports(copy("a"), copy("b"), copy("c"))
    assert watch.check() == []
    assert [[one.server for one in each] for each in said] == [["a"], []]
    servers.told = reports(copy("a", 8), copy("b"), copy("c"))
    watch.check()
    clock.advance(ms=SURE_MS)
    watch.check()
    late: list[list[SickCopy]] = []
    watch.on_change(late.append)
    assert late == [watch.sick] != [[]]


def test_what_may_be_a_copy_that_is_behind_must_stay_so() -> None:
    watch, servers, clock, said = make_watch()
    servers.told = reports(copy("a"), copy("b"))
    assert watch.check() == []
    clock.advance(ms=SURE_MS - 1)
    assert watch.check() == []
    clock.advance(ms=1)
    assert [one.server for one in watch.check()] == ["c"]
    assert len(said) == 1


def test_who_does_not_answer_is_not_healed_by_that() -> None:
    watch, servers, clock, _ = make_watch()
    servers.told = reports(copy("a"), copy("b", 8), copy("c"))
    watch.check()
    clock.advance(ms=SURE_MS)
    watch.check()
    servers.told = reports(copy("a"), copy("c"))
    assert [one.server for one in watch.check()] == ["b"]
    servers.told = []
    assert [one.server for one in watch.check()] == ["b"]
    clock.advance(ms=SURE_MS)
    servers.told = reports(copy("a"), copy("b"), copy("c"))
    assert watch.check() == []


def test_copies_of_a_server_that_was_started_are_read_when_they_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[int | Exception | None] = []
    asked: list[str] = []

    def read(
        connection: object,
        stream: str,
        server: str,
        first: int,
        end: int,
        others: list[str],
        **more: object,
    ) -> int | None:
        assert {server, *others} == {"a", "b", "c"}
        asked.append(server)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("dejaqueue.journal.records.nats.watch.find_damage", read)
    watch, servers, clock, _ = make_watch()
    servers.told = reports(copy("a"), copy("b"), copy("c"))
    watch.check()
    assert asked == []
    started = [replace(one, run="again" if one.server == "b" else one.run) for one in servers.told]
    # It is there, but not yet its copy; then it does not answer for it; then it can be read.
    servers.told = [replace(one, copies=()) if one.server == "b" else one for one in started]
    watch.check()
    assert asked == []
    servers.told = started
    answers[:] = [Unavailable("not yet"), 4]
    assert watch.check() == []
    assert watch.check() == []  # it was looked at once
    assert asked == ["b", "b"]
    clock.advance(ms=SURE_MS)
    answers[:] = [None, 4, None]  # that record is read on all of them until it is whole
    assert [one.number for one in watch.check()] == [4]
    answers[:] = [None] * 3
    assert watch.check() == []
    assert watch.check() == []
    watch.distrust("c")
    answers[:] = [None]
    watch.check()
    assert asked[-1] == "c"


def test_copies_of_a_server_are_read_by_the_broker_beside_it_and_by_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        "dejaqueue.journal.records.nats.watch.find_damage",
        lambda connection, stream, server, *_, **more: asked.append(server),
    )
    watch, servers, _, _ = make_watch()
    servers.told = reports(copy("a"), copy("b"), copy("c"))
    watch.distrust("a")
    watch.check()
    assert asked == ["a"]
    servers.told = [replace(one, run="again") for one in servers.told]
    watch.check()
    watch.check()
    assert asked == ["a", "a"]


def test_many_copies_are_read_a_few_at_a_time__what_cannot_be_read_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch, servers, clock, _ = make_watch()
    asked: list[str] = []

    def read(connection: object, stream: str, *_: object, **more: object) -> None:
        asked.append(stream)
        clock.advance(ms=READ_MS // 2)
        if stream == "q-objects":
            raise Unavailable("not yet")

    monkeypatch.setattr("dejaqueue.journal.records.nats.watch.find_damage", read)
    streams = ["q-objects", "q-records-1", "q-records-2"]
    servers.told = reports(*(copy("a", stream=one) for one in streams))
    watch.distrust("a")
    watch.check()
    assert asked == streams[:2]
    watch.check()
    assert asked[2:] == ["q-records-2", "q-objects"]
    watch.check()
    assert asked[4:] == ["q-objects"]


def test_a_copy_that_is_being_read_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading = threading.Event()

    def read(*_: object, check: Callable[[], None], **more: object) -> None:
        while True:  # a large one
            reading.set()
            check()

    monkeypatch.setattr("dejaqueue.journal.records.nats.watch.find_damage", read)
    monkeypatch.setattr("dejaqueue.journal.records.nats.watch.SOON_MS", 1)
    servers = FakeServers()
    servers.told = reports(copy("a"), copy("b"), copy("c"))
    watch = CopyWatch(servers, servers, "q", "q-records-", SystemClock())  # type: ignore[arg-type]
    watch.start()
    watch.distrust("b")
    assert reading.wait(PATIENCE_SECONDS)
    thread = watch._thread
    assert thread is not None
    watch.close()
    assert not thread.is_alive()


def test_a_record_that_was_given_back_between_two_looks_accuses_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dejaqueue.journal.records.nats.watch.find_damage", lambda *_, **more: 1)
    watch, servers, clock, said = make_watch()
    servers.told = reports(copy("a"), copy("b"), copy("c"))
    watch.check()
    watch.distrust("b")
    assert watch.check() == []
    clock.advance(ms=SURE_MS)
    # Records up to here are not needed any more, as the next look shows.
    servers.told = [
        replace(one, copies=tuple(replace(c, first=3, messages=c.last - 2) for c in one.copies))
        for one in servers.told
    ]
    monkeypatch.setattr("dejaqueue.journal.records.nats.watch.find_damage", lambda *_, **more: None)
    assert watch.check() == []
    assert said == []
