"""One run of the demo: its faults, when it is over, what it leaves. Whole runs: tests/cli."""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import pytest

import dejaqueue
from dejaqueue.cli.demo import run as module
from dejaqueue.cli.demo.cluster import ClusterProcesses
from dejaqueue.cli.demo.plan import make_plan
from dejaqueue.cli.demo.processes import BrokerProcess
from dejaqueue.cli.demo.replay import Replay
from dejaqueue.cli.demo.run import Faults, Options
from dejaqueue.cli.demo.verdict import NOT_TOLD
from dejaqueue.clock import SystemClock
from dejaqueue.errors import Unavailable
from dejaqueue.model import RowStatus
from tests.cli.small_flights import small_flights

LENGTH_MS = 9_000
PLAN = make_plan(small_flights(), LENGTH_MS, notice_minutes=20, notice_ms_min=50)


def options(tmp_path: Path, **more: Any) -> Options:
    usual: dict[str, Any] = {"day": None, "notice_minutes": 1, "notice_ms": 1, "data": None}
    return Options(LENGTH_MS, html=tmp_path / "page.html", **(usual | {"kill": False} | more))


class Broker:
    """Notes what is done to it."""

    url = "dejaq://h:1"

    def __init__(self) -> None:
        self.told: list[str] = []

    def kill(self) -> None:
        self.told.append("kill")

    def start(self) -> None:
        self.told.append("start")


class Cluster(ClusterProcesses):
    """Three brokers that nobody started."""

    def __init__(self) -> None: ...

    def kill_owner(self, topic: str) -> str:
        return f"killed the owner of {topic}"

    def put_owner_to_sleep(self, topic: str) -> str:
        return f"the owner of {topic} slept"


def test_a_broker_is_killed_half_way_and_started_again(tmp_path: Path) -> None:
    broker = Broker()
    [(after_ms, kill)] = module._faults(cast(BrokerProcess, broker), options(tmp_path, kill=True))
    assert after_ms == LENGTH_MS // 2
    assert "killed with SIGKILL" in kill()
    assert broker.told == ["kill", "start"]
    assert module._faults(cast(BrokerProcess, broker), options(tmp_path)) == []


def test_of_a_cluster_one_is_killed_after_a_third_and_one_sleeps_after_two(tmp_path: Path) -> None:
    faults = module._faults(Cluster(), options(tmp_path, cluster=True))
    assert [(after_ms, do()) for after_ms, do in faults] == [
        (LENGTH_MS // 3, "killed the owner of departures"),
        (LENGTH_MS * 2 // 3, "the owner of departures slept"),
    ]


def test_faults_happen_in_their_order_and_are_said() -> None:
    said: list[str] = []
    faults = Faults(
        [(30, lambda: "first"), (60, lambda: "second")],
        SystemClock().now_ms(),
        cast(Any, SimpleNamespace(say=said.append)),
    )
    began_ms = SystemClock().now_ms()
    faults.start()
    faults.join(20)
    assert (said, faults.first_ms) == (["first", "second"], 30)
    assert SystemClock().now_ms() - began_ms >= 50
    assert Faults([], 0, cast(Any, None)).first_ms == -1


def replay(statuses: list[int] | None = None) -> Replay:
    found = np.full(len(PLAN), NOT_TOLD) if statuses is None else np.array(statuses)
    return cast(Replay, SimpleNamespace(start_ms=1_000, statuses=found))


@pytest.mark.parametrize(
    ("now_ms", "counts", "is_over"),
    [
        (1_000 + LENGTH_MS - 1, (5, 5), False),
        (1_000 + LENGTH_MS, (2, 2), False),
        (1_000 + LENGTH_MS, (2, 3), True),
        (1_000 + LENGTH_MS + 500, (0, 0), False),
        (1_000 + LENGTH_MS + 501, (0, 0), True),
    ],
)
def test_it_is_over_when_the_time_has_passed_and_all_has_come_or_had_time_to(
    now_ms: int, counts: tuple[int, ...], is_over: bool
) -> None:
    clock = cast(SystemClock, SimpleNamespace(now_ms=lambda: now_ms))
    consumers = cast(Any, [SimpleNamespace(count=count) for count in counts])
    assert module._is_over(replay(), PLAN, consumers, clock, 500) is is_over


def test_a_flight_is_expected_unless_it_is_known_to_be_cancelled() -> None:
    assert module._expected(replay(), PLAN) == 5
    everything = [int(RowStatus.OK)] * 5
    assert module._expected(replay(everything), PLAN) == 4, "D never left"
    assert module._expected(replay([*everything[:3], int(RowStatus.NOT_FOUND), 0]), PLAN) == 5


class Client:
    """The topics of a broker, and what was done to them."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.told: list[Any] = []

    def topics(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.names]

    def __getattr__(self, name: str) -> Any:
        return lambda topic, **more: self.told.append((name, topic, *more.items()))


def test_the_topic_is_made_anew__with_a_short_lease_where_brokers_die(tmp_path: Path) -> None:
    client = Client("other", "departures")
    module._make_topic(cast(Any, client), options(tmp_path))
    assert client.told == [("delete_topic", "departures"), ("create_topic", "departures")]
    client = Client("other")
    module._make_topic(cast(Any, client), options(tmp_path, kill=True))
    short = ("alter_topic", "departures", ("lease_ms", module.KILL_LEASE_MS))
    assert client.told == [("create_topic", "departures"), short]


class Consumer:
    """A consumer's process that nobody started."""

    made: ClassVar[list[Consumer]] = []
    fails = False

    def __init__(self, *given: Any, confirm: bool, **more: Any) -> None:
        self.confirm = confirm
        self.told: list[str] = []
        self.made.append(self)

    def wait_ready(self) -> None:
        self.told.append("wait")
        if self.fails:
            raise Unavailable("a consumer did not start")

    def kill(self) -> None:
        self.told.append("kill")


@pytest.mark.parametrize("fails", [False, True])
def test_no_consumer_is_left__whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr(Consumer, "made", [])
    monkeypatch.setattr(Consumer, "fails", fails)
    monkeypatch.setattr(module, "ConsumerProcess", Consumer)
    asked = options(tmp_path, kill=True)
    begun: list[Any] = []
    with suppress(Unavailable), module._consumers(cast(Any, Broker()), tmp_path, asked) as ready:
        begun = ready
        assert [one.told for one in Consumer.made] == [["wait"]] * module.CONSUMER_COUNT
    assert len(begun) == (0 if fails else module.CONSUMER_COUNT)
    assert len(Consumer.made) == module.CONSUMER_COUNT
    assert all(one.told[-1] == "kill" and one.confirm for one in Consumer.made)


def test_what_a_consumer_wrote_is_read(tmp_path: Path) -> None:
    table = pa.table({"key": ["a", "b"]})
    path = tmp_path / "out.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    assert module._read(path).equals(table)


def test_the_page_says_what_was_done_to_the_brokers(tmp_path: Path) -> None:
    def names(**more: Any) -> list[str]:
        facts = module._facts(options(tmp_path, day=date(2013, 7, 1), **more))
        return [name for name, _ in facts if name in ("killed", "asleep")]

    assert names() == []
    assert names(kill=True) == ["killed"]
    assert names(cluster=True) == ["killed", "asleep"]


def test_the_console_is_left_open_on_flights_to_come(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONSOLE_MS", 1)
    said: list[str] = []
    broker, progress = (
        SimpleNamespace(url=url, http_url="http://h"),
        SimpleNamespace(say=said.append),
    )
    for _ in range(2):  # in a kept directory there are those of the run before
        module._leave_open(cast(Any, broker), small_flights(), cast(Any, progress))
    with dejaqueue.Client(url) as client:
        assert client.stats(module.COMING).scheduled == len(small_flights())
    assert f"http://h/console/future?span=hour&topic={module.COMING}" in said[0]
