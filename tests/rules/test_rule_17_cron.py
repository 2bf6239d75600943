"""Rule 17: each firing of each entry happens exactly once as a message, across restarts and changes
of the clock; a local time that is left out follows the misfire policy, a repeated one fires once.

Covered: the broker, on a virtual clock, stopped and killed. The arithmetic alone:
tests/unit/broker/cron.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.model import TopicKind
from dejaqueue.schema.cron import HEADER_ENTRY, HEADER_FIRING, CronEntry
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import TOPIC, BrokerFixture

MINUTE = 60_000
HOUR = 60 * MINUTE


def ms(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def utc(instant_ms: int) -> str:
    return datetime.fromtimestamp(instant_ms / 1000, UTC).strftime("%m-%d %H:%M:%S")


class CronFixture(BrokerFixture):
    """A broker with a cron topic, and what its entries made."""

    def __init__(self, path: Path | None = None, **topic: Any) -> None:
        super().__init__(path, kind=TopicKind.CRON, **topic)

    def start_at(self, instant_ms: int) -> None:
        self.advance(instant_ms - self.now_ms)

    def call(self, action: str, **body: Any) -> dict[str, Any]:
        return self.broker.call(f"cron_{action}", {"topic": TOPIC, **body})

    def put(self, name: str = "e", **fields: Any) -> dict[str, Any]:
        made: dict[str, Any]
        [made] = self.call("put", entries=[CronEntry(name, **fields).to_dict()])["entries"]
        return made

    def run_until(self, until_ms: int) -> None:
        """Let time pass as it does, from wake to wake."""
        runtime = self.broker.runtime(TOPIC)
        while True:
            wakes = [
                runtime.look(n, lambda place: place.engine.schedule.next_wake_ms()).result(
                    PATIENCE_SECONDS
                )
                for n in range(len(runtime.partitions))
            ]
            wake_ms = min((wake for wake in wakes if wake is not None), default=until_ms)
            if wake_ms >= until_ms:
                break
            self.advance(max(0, wake_ms - self.now_ms))
        self.advance(until_ms - self.now_ms)

    def kill(self, path: Path) -> None:
        """Go on from what is on disk at this moment."""
        assert self.path is not None
        shutil.copytree(self.path, path)
        self.broker.stop()
        self.path = path
        self.broker = self._start()
        self.settle_down()

    def firings(self) -> list[tuple[str, str]]:
        """(entry, time) of each message that there is."""
        rows = self.peek(limit=10_000)
        named = [(row["headers"][HEADER_ENTRY], row["headers"][HEADER_FIRING]) for row in rows]
        assert len(set(named)) == len(named), "two messages bear the name of one firing"
        found = [(entry, int(firing.partition(".")[0])) for entry, firing in named]
        return [(entry, utc(firing_ms)) for entry, firing_ms in sorted(found, key=lambda f: f[1])]

    def times(self) -> list[str]:
        return [time for _, time in self.firings()]


@pytest.fixture
def cron(tmp_path: Path) -> Iterator[CronFixture]:
    fixture = CronFixture(tmp_path / "journal")
    yield fixture
    fixture.stop()


# --- a message at its time ----------------------------------------------------------------------


def test_an_entry_fires_as_a_message_at_its_time(cron: CronFixture) -> None:
    cron.start_at(ms("2026-01-05T08:00"))
    consumer = cron.consumer()
    cron.put("report", cron="0 9 * * MON-FRI", zone="Europe/Berlin", payload=b"go", tags=("red",),
             group="g", priority=7, headers={"a": "b"})  # fmt: skip
    cron.run_until(ms("2026-01-05T07:59:59.999") + HOUR)
    assert consumer.payloads() == []  # nine in Berlin was an hour before: tomorrow then
    cron.run_until(ms("2026-01-06T08:00") - 1)
    assert consumer.payloads() == []
    cron.advance(1)
    [row] = [row for got in consumer.take_all() for row in got.batch.to_pylist()]
    assert (row["payload"], row["group"], row["priority"]) == (b"go", "g", 7)
    assert row["tags"] == ["red"]
    assert dict(row["headers"]) == {
        "a": "b",
        HEADER_ENTRY: "report",
        HEADER_FIRING: str(ms("2026-01-06T08:00")),
    }
    assert row["due"] == ms("2026-01-06T08:00")


def test_six_fields_begin_with_seconds(cron: CronFixture) -> None:
    cron.start_at(ms("2026-01-05T08:00"))
    cron.put(cron="*/20 * * * * *")
    cron.run_until(ms("2026-01-05T08:01"))
    assert cron.times() == ["01-05 08:00:20", "01-05 08:00:40", "01-05 08:01:00"]


def test_an_interval_is_counted_from_its_start(cron: CronFixture) -> None:
    cron.start_at(ms("2026-01-05T08:00"))
    cron.put("from-now", every_ms=90_000)
    cron.put("from-then", every_ms=HOUR, start_ms=ms("2026-01-05T06:30"))
    cron.put("few", every_ms=MINUTE, start_ms=ms("2026-01-05T08:10"), end_ms=ms("2026-01-05T08:12"))
    cron.run_until(ms("2026-01-05T08:03"))
    assert cron.times() == ["01-05 08:01:30", "01-05 08:03:00"]
    cron.call("drop", names=["from-now"])
    cron.run_until(ms("2026-01-05T08:40"))
    assert cron.firings()[2:] == [
        ("few", "01-05 08:10:00"),
        ("few", "01-05 08:11:00"),
        ("from-then", "01-05 08:30:00"),
    ]


def test_jitter_delays_by_the_same_for_the_same_firing(cron: CronFixture) -> None:
    cron.start_at(ms("2026-01-05T08:00"))
    for name in ("a", "b", "c"):
        cron.put(name, cron="0 * * * *", jitter_ms=10 * MINUTE)
    shown = [cron.call("next", name=name, count=2)["firings"] for name in ("a", "b", "c")]
    cron.run_until(ms("2026-01-05T10:30"))
    dues = sorted(row["due"] for row in cron.peek())
    assert dues == sorted(due for two in shown for due in two)
    assert all(0 <= due % HOUR <= 10 * MINUTE for due in dues)
    assert len({due % HOUR for due in dues}) == 6


def test_ordinary_messages_may_be_sent_to_a_cron_topic(cron: CronFixture) -> None:
    cron.send([b"now"])
    assert cron.consumer().payloads() == [b"now"]


# --- once, whatever stops -----------------------------------------------------------------------


@pytest.mark.parametrize("killed", [False, True])
def test_every_firing_is_one_message_across_restarts(
    cron: CronFixture, tmp_path: Path, killed: bool
) -> None:
    cron.start_at(ms("2026-01-05T08:00"))
    cron.put("a", cron="* * * * *")
    cron.put("b", every_ms=7_000, start_ms=ms("2026-01-05T08:00"), misfire="all")
    for stop in range(40):
        # Around the firing, before its message is due, and after.
        cron.run_until(cron.now_ms + (59_400, 300, 299, 1, 200)[stop % 5])
        if killed:
            cron.kill(tmp_path / f"{stop}")
        else:
            cron.restart()
            cron.settle_down()
    end_ms = ms("2026-01-05T08:09")
    cron.run_until(end_ms)
    found = cron.firings()
    assert [time for name, time in found if name == "a"] == [
        utc(ms("2026-01-05T08:00") + n * MINUTE) for n in range(1, 10)
    ]
    due = [row for row in cron.peek(limit=10_000) if row["due"] <= end_ms]
    times = [int(r["headers"][HEADER_FIRING]) for r in due if r["headers"][HEADER_ENTRY] == "b"]
    assert times == [ms("2026-01-05T08:00") + n * 7_000 for n in range(1, 78)]


def test_a_clock_that_goes_back_fires_nothing_twice(cron: CronFixture) -> None:
    cron.start_at(ms("2026-01-05T08:00"))
    cron.put(cron="* * * * *")
    cron.run_until(ms("2026-01-05T08:03"))
    cron.clock.advance(ms=-150_000)
    cron.restart()
    cron.run_until(ms("2026-01-05T08:05"))
    assert cron.times() == [f"01-05 08:0{n}:00" for n in range(1, 6)]


# --- misfires -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("misfire", "expected"),
    [
        ("skip", ["10:15", "13:00"]),
        ("once", ["10:15", "12:45", "13:00"]),
        ("all", ["10:15", *(f"{h}:{m:02}" for h in (10, 11, 12) for m in (0, 15, 30, 45)
                            if (h, m) > (10, 15)), "13:00"]),
    ],
)  # fmt: skip
def test_what_was_missed_while_nothing_ran_follows_the_policy(
    cron: CronFixture, misfire: str, expected: list[str]
) -> None:
    cron.start_at(ms("2026-01-05T10:01"))
    cron.put("cron", cron="*/15 * * * *", misfire=misfire)
    cron.put("every", every_ms=15 * MINUTE, start_ms=ms("2026-01-05T00:00"), misfire=misfire)
    cron.run_until(ms("2026-01-05T10:20"))
    cron.broker.stop()
    cron.clock.advance(ms=ms("2026-01-05T12:50") - cron.now_ms)
    cron.broker = cron._start()
    cron.settle_down()
    cron.run_until(ms("2026-01-05T13:05"))
    for name in ("cron", "every"):
        times = [time for found, time in cron.firings() if found == name]
        assert times == [f"01-05 {clock}:00" for clock in expected]


def test_more_was_missed_than_one_step_makes_up_for(cron: CronFixture) -> None:
    cron.start_at(ms("2026-01-05T08:00"))
    cron.put(every_ms=1_000, misfire="all", start_ms=ms("2026-01-05T08:00"))
    cron.advance(HOUR)
    cron.run_until(ms("2026-01-05T09:00:00.100"))
    assert cron.times() == [utc(ms("2026-01-05T08:00") + n * 1_000) for n in range(1, 3_601)]


# --- changes of the clock -----------------------------------------------------------------------

SPRINGS = [  # zone, before it, cron, then in UTC: firings that stay, and those that are left out
    ("Europe/Berlin", "2026-03-28T12:00", "30 2 * * *", "03-30 00:30", "03-29 01:00", 1),
    ("America/New_York", "2026-03-07T12:00", "30 2 * * *", "03-09 06:30", "03-08 07:00", 1),
    ("America/New_York", "2026-03-07T12:00", "0,30 2 * * *", "03-09 06:00", "03-08 07:00", 2),
    ("Australia/Lord_Howe", "2026-10-03T12:00", "15 2 * * *", "10-04 15:15", "10-03 15:30", 1),
]


@pytest.mark.parametrize(("zone", "start", "expression", "after", "gap", "count"), SPRINGS)
@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_a_local_time_that_is_left_out_follows_the_policy(
    cron: CronFixture, zone: str, start: str, expression: str, after: str, gap: str, count: int,
    misfire: str,
) -> None:  # fmt: skip
    cron.start_at(ms(start, zone))
    cron.put(cron=expression, zone=zone, misfire=misfire)
    cron.run_until(ms(f"2026-{after.replace(' ', 'T')}"))
    made = {"skip": 0, "once": 1, "all": count}[misfire]
    assert cron.times() == [f"{gap}:00"] * made + [f"{after}:00"]


AUTUMNS = [
    ("Europe/Berlin", "2026-10-24T12:00", "30 2 * * *", ["10-25 00:30", "10-26 01:30"]),
    ("America/New_York", "2026-10-31T12:00", "30 1 * * *", ["11-01 05:30", "11-02 06:30"]),
    ("Australia/Lord_Howe", "2026-04-04T12:00", "45 1 * * *", ["04-04 14:45", "04-05 15:15"]),
]


@pytest.mark.parametrize(("zone", "start", "expression", "expected"), AUTUMNS)
@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_a_local_time_that_comes_twice_fires_once(
    cron: CronFixture, zone: str, start: str, expression: str, expected: list[str], misfire: str
) -> None:
    cron.start_at(ms(start, zone))
    cron.put(cron=expression, zone=zone, misfire=misfire)
    cron.run_until(ms(f"2026-{expected[-1].replace(' ', 'T')}"))
    assert cron.times() == [f"{time}:00" for time in expected]


# --- overlap, pause, change ---------------------------------------------------------------------


def test_overlap_skip_waits_for_the_message_before(cron: CronFixture, tmp_path: Path) -> None:
    cron.start_at(ms("2026-01-05T08:00"))
    cron.put(cron="* * * * *", overlap="skip")
    cron.run_until(ms("2026-01-05T08:03:30"))
    assert cron.times() == ["01-05 08:01:00"]
    cron.kill(tmp_path / "killed")  # firings without a message are read again too
    cron.run_until(ms("2026-01-05T08:03:35"))
    consumer = cron.consumer()
    [got] = consumer.take_all()
    cron.run_until(ms("2026-01-05T08:03:45"))
    assert cron.times() == ["01-05 08:01:00"]  # leased is live
    consumer.ack(got)
    cron.run_until(ms("2026-01-05T08:05:30"))
    assert cron.times() == ["01-05 08:04:00"]


@pytest.mark.parametrize("how", ["pause", "drop", "change"])
def test_an_entry_that_stops_just_before_its_time_does_not_fire(
    cron: CronFixture, how: str
) -> None:
    cron.start_at(ms("2026-01-05T08:00"))
    cron.put(cron="* * * * *")
    cron.run_until(ms("2026-01-05T08:01") - 1)
    assert cron.times() == ["01-05 08:01:00"]  # its message waits already
    calls: dict[str, Callable[[], object]] = {
        "pause": lambda: cron.call("pause", names=["e"]),
        "drop": lambda: cron.call("drop", names=["e"]),
        "change": lambda: cron.put(cron="0 12 * * *"),
    }
    calls[how]()
    cron.run_until(ms("2026-01-05T08:03"))
    assert cron.times() == []


def test_what_passes_while_paused_is_not_missed(cron: CronFixture) -> None:
    cron.start_at(ms("2026-01-05T08:00"))
    cron.put(cron="* * * * *", misfire="all")
    cron.call("pause", names=["e"])
    assert cron.call("get", name="e")["entries"][0]["next_ms"] == -1
    cron.run_until(ms("2026-01-05T08:03:30"))
    [entry] = cron.call("pause", names=["e"], paused=False)["entries"]
    assert entry["next_ms"] == ms("2026-01-05T08:04")
    cron.run_until(ms("2026-01-05T08:04"))
    assert cron.times() == ["01-05 08:04:00"]


def test_an_entry_that_is_put_again_goes_on_as_it_was(cron: CronFixture) -> None:
    cron.start_at(ms("2026-01-05T08:00"))
    for second in range(0, 200, 7):
        cron.run_until(ms("2026-01-05T08:00") + second * 1_000 + 900)
        cron.put(every_ms=10_000, payload=b"%d" % second)
    cron.run_until(ms("2026-01-05T08:03:30"))
    assert cron.times() == [utc(ms("2026-01-05T08:00:00") + 900 + n * 10_000) for n in range(1, 21)]


def test_run_now_is_a_message_beside_the_schedule(cron: CronFixture) -> None:
    cron.start_at(ms("2026-01-05T08:00:10"))
    made = cron.put(cron="* * * * *", payload=b"x")
    message_id = cron.call("run", name="e")["id"]
    assert [row["id"] for row in cron.peek()] == [message_id]
    [entry] = cron.call("get", name="e")["entries"]
    assert (entry["next_ms"], entry["last_id"]) == (made["next_ms"], message_id)
    cron.run_until(ms("2026-01-05T08:01"))
    assert cron.times() == ["01-05 08:00:10", "01-05 08:01:00"]


# --- many, and partitions -----------------------------------------------------------------------


def test_many_entries_of_one_instant_are_few_entries_of_the_journal() -> None:
    cron = CronFixture(partitions=2)
    cron.start_at(ms("2026-01-05T08:00"))
    given = [CronEntry(f"e{n:04}", cron="0 9 * * *").to_dict() for n in range(3_000)]
    cron.call("put", entries=given)
    runtime = cron.broker.runtime(TOPIC)

    def positions() -> int:
        return sum(
            runtime.look(n, lambda place: place.position).result(PATIENCE_SECONDS) for n in (0, 1)
        )

    before = positions()
    cron.run_until(ms("2026-01-05T09:00"))
    assert positions() - before <= 4
    assert sorted(name for name, _ in cron.firings()) == [f"e{n:04}" for n in range(3_000)]
    page = cron.call("list", after="e0999", limit=3)["entries"]
    assert [entry["name"] for entry in page] == ["e1000", "e1001", "e1002"]
    cron.stop()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"cron": "61 * * * *"}, "entry.cron"),
        ({"cron": "* * *"}, "5 or 6 fields"),
        ({"cron": "0 0 30 2 *"}, "entry.cron"),
        ({"cron": "* * * * *", "zone": "Mars/Base"}, "entry.zone"),
        ({"cron": "* * * * *", "zone": "../etc/passwd"}, "entry.zone"),
        ({"cron": "* * * * *", "every_ms": 1_000}, "either cron or every_ms"),
        ({}, "either cron or every_ms"),
        ({"every_ms": 10}, "at least 1000"),
        ({"every_ms": -1}, "entry.every_ms"),
        ({"every_ms": 5_000, "start_ms": 9, "end_ms": 9}, "entry.end_ms"),
        ({"every_ms": 5_000, "payload": b"x" * 70_000}, "entry.payload"),
        ({"every_ms": 5_000, "headers": {HEADER_ENTRY: "x"}}, "entry.headers"),
        ({"every_ms": 5_000, "tags": ("a\x1f",)}, "entry.tags"),
        ({"every_ms": 5_000, "priority": 70_000}, "entry.priority"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(
    cron: CronFixture, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadRequest, match=text):
        cron.put(**fields)
    assert cron.call("list")["entries"] == []


def test_only_cron_topics_have_entries() -> None:
    plain = BrokerFixture()
    with pytest.raises(BadRequest, match="kind cron"):
        plain.broker.call("cron_list", {"topic": TOPIC})
    plain.stop()


def test_an_unknown_entry_is_refused(cron: CronFixture) -> None:
    for action, body in (
        ("get", {"name": "x"}),
        ("pause", {"names": ["x"]}),
        ("run", {"name": "x"}),
    ):
        with pytest.raises(BadRequest, match="name of an entry"):
            cron.call(action, **body)
    assert cron.call("drop", names=["x"]) == {"dropped": 0}
