"""Covers: calls of our own client to a broker that hangs: those that may be made twice go on at
another one after some ten seconds, and no other waits for them; a long call at a broker that is
well is not cut; the broker that puts shards together, or passes a call on, names the one that does
not answer.

In a cluster, where others take the topics, and with several processes, where nobody does. Not
covered: streams (test_kill.py), the clients for Go and Java (tests/clients/test_accidents.py).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from dejaqueue import AsyncClient, Client
from dejaqueue.client.flight_transport import CALL_SECONDS_MAX, FlightTransport
from dejaqueue.errors import Unavailable
from tests.clients.places import Place, Processes, brokers_on_redis
from tests.clients.stages import topics_of
from tests.patience import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.crash]

LEFT_SECONDS_MAX = CALL_SECONDS_MAX - 15
"""What a call takes that leaves a broker: ten to twelve seconds, and what this machine adds. One
that does not takes CALL_SECONDS_MAX."""


PROGRAM = """
import sys
from dejaqueue import Client
client = Client(sys.argv[1])
print("connected", client.stats("left").scheduled, flush=True)
sys.stdin.readline()
print("left", client.stats("left").scheduled, flush=True)
"""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Three brokers of a cluster, on Redis."""
    yield from brokers_on_redis(tmp_path_factory.mktemp("brokers"))


def seconds_of(call: Callable[[], object]) -> float:
    """How long a call took that succeeded."""
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_calls_leave_a_broker_that_hangs__and_find_its_topics_elsewhere(brokers: Place) -> None:
    brokers.come_back()
    victim = brokers.entry  # the one that the client begins at
    names = topics_of(brokers, "hangs")
    mine = next(topic for topic, owner in names if owner == victim)
    with brokers.client() as client:
        client.send(mine, b"x", delay=3_600)
        client.stats(mine)
        frozen = brokers.freeze(victim)
        try:
            calls: list[Callable[[], object]] = [
                lambda: client.create_topic("made-meanwhile"),
                lambda: client.alter_topic(mine, lease_ms=9_000),
                lambda: client.stats(mine),
                lambda: client.peek(mine),
                lambda: client.counts(mine),
                lambda: client.topics(),
                lambda: client.get(mine, id=1),
                client.stats,
            ]
            with ThreadPoolExecutor(len(calls)) as calling:
                took = list(calling.map(seconds_of, calls))
            assert max(took) < LEFT_SECONDS_MAX, took
            assert seconds_of(lambda: client.stats(mine)) < 5, "it is where the client looks first"
            assert client.stats(mine).scheduled == 1
            assert seconds_of(lambda: asyncio.run(peeked(brokers, mine))) < LEFT_SECONDS_MAX
            began = time.monotonic()
        finally:
            brokers.thaw(frozen)
    assert time.monotonic() - began < 15, "closing waits for no call that was left"


def test_a_program_that_left_a_broker_ends__though_it_closes_nothing(brokers: Place) -> None:
    brokers.come_back()
    with brokers.client() as client:
        client.create_topic("left")
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, brokers.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    frozen = 0
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "connected 0\n"
        frozen = brokers.freeze(brokers.entry)
        began = time.monotonic()
        said, logged = program.communicate("go on\n", timeout=PATIENCE_SECONDS)
        assert (program.returncode, said) == (0, "left 0\n"), logged
        assert 9 < time.monotonic() - began < LEFT_SECONDS_MAX
    finally:
        program.kill()
        program.communicate()
        if frozen:
            brokers.thaw(frozen)


async def peeked(place: Place, topic: str) -> None:
    """The same of a client that was connected to nobody yet."""
    async with AsyncClient(place.url) as client:
        await client.create_topic(topic, lease_ms=9_000)
        assert (await client.stats(topic)).scheduled == 1
        assert (await client.peek(topic)).num_rows == 1


def test_a_topic_in_shards_is_put_together_without_the_broker_that_hangs(brokers: Place) -> None:
    brokers.come_back()
    victim = brokers.nodes[1]
    topic = "in-shards"
    with brokers.client() as client:
        client.create_topic(topic, spread=3, partitions=3)
        for number in range(30):
            client.send(topic, b"x", key=f"k{number}", delay=3_600)
        doors = {one["node"]: str(one["http_url"]) for one in client.cluster()["nodes"]}
    door = doors[brokers.entry]
    # On a busy machine a broker may have lost its membership for a moment, and its slots with it.
    until(lambda: victim in brokers.owners(topic), "each broker serves a shard")

    def asked(what: str) -> float:
        began = time.monotonic()
        answer = httpx.get(f"{door}/v1/topics/{topic}/{what}", timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200, answer.text
        return time.monotonic() - began

    asked("stats")
    frozen = brokers.freeze(victim)
    try:
        with ThreadPoolExecutor(3) as asking:
            took = list(asking.map(asked, ("stats", "messages", "counts")))
        assert max(took) < LEFT_SECONDS_MAX, took
        with brokers.client() as client:
            assert client.stats(topic).scheduled == 30
            assert client.peek(topic).num_rows == 30
    finally:
        brokers.thaw(frozen)


@pytest.mark.parametrize("lease_ms", [5_000, 120_000])
def test_a_process_that_hangs_and_keeps_its_topics_is_named(tmp_path: Path, lease_ms: int) -> None:
    with Processes(tmp_path, cluster__lease_ms=lease_ms) as place:
        topic = "in-shards"
        with place.client() as client:
            client.create_topic(topic, spread=4, partitions=4)
            for number in range(40):  # what nobody has used has no lock, and is anybody's
                client.send(topic, b"x", key=f"k{number}", delay=3_600)
            nodes = {one["node"]: one for one in client.cluster()["nodes"]}
        owners = place.owners(topic)
        victim, asked = owners[0], next(one for one in owners if one != owners[0])
        frozen = place.freeze(victim)
        # While its lease goes on it is the owner, and out of reach; then it has the locks still.
        names = [f"the broker at {nodes[victim]['url']} "]
        if lease_ms == 5_000:
            names.append(f"is in use by process {frozen}")
        try:
            url = f"{nodes[asked]['http_url']}/v1/topics/{topic}/stats"
            began = time.monotonic()
            answer = httpx.get(url, timeout=PATIENCE_SECONDS)
            assert time.monotonic() - began < LEFT_SECONDS_MAX
            assert answer.status_code == 503, answer.text
            assert any(name in answer.text for name in names), answer.text
            with Client(nodes[asked]["url"], retry_ms_max=0) as client:
                with pytest.raises(Unavailable) as told:
                    client.stats(topic)
                assert any(name in str(told.value) for name in names), told.value
        finally:
            place.thaw(frozen)


def test_a_call_that_is_passed_on_names_the_owner_that_hangs__and_the_next_one_soon(
    tmp_path: Path,
) -> None:
    with Processes(tmp_path, cluster__lease_ms=120_000) as place:  # nobody takes its topics
        with place.client() as client:
            topic = "passed-on"
            client.create_topic(topic)
            client.send_batch(topic, [b"x"] * 10)  # what nobody has used is anybody's
            nodes = {one["node"]: one for one in client.cluster()["nodes"]}
        (victim,) = place.owners(topic)
        asked = next(node for name, node in nodes.items() if name != victim)
        ticket = {"topic": topic, "partition": 0}
        stays = FlightTransport(asked["url"])
        calls: list[Callable[[], object]] = [
            lambda: stays.action("stats", {"topic": topic}, repeats=True).result(),
            lambda: stays.rows({"op": "peek", "topic": topic}, repeats=True).result(),
            lambda: list(stays.scan(ticket)),
        ]

        def refused(call: Callable[[], object]) -> float:
            began = time.monotonic()
            with pytest.raises(Unavailable, match=f"broker at {nodes[victim]['url']} does not"):
                call()
            return time.monotonic() - began

        def refused_by_http(path: str) -> float:
            began = time.monotonic()
            answer = httpx.get(f"{asked['http_url']}/v1/topics/{topic}/{path}", timeout=60)
            assert answer.status_code == 503
            assert f"broker at {nodes[victim]['http_url']} does not" in answer.text
            return time.monotonic() - began

        for call in calls:
            call()  # while all is well
        frozen = place.freeze(victim)
        try:
            took = [refused(call) for call in calls]
            by_http = [refused_by_http(path) for path in ("stats", "messages")]
            print([round(one, 1) for one in (*took, *by_http)])
            assert took[0] < LEFT_SECONDS_MAX
            assert max(took[1:]) < took[0]
            assert by_http[1] < by_http[0] < LEFT_SECONDS_MAX
        finally:
            place.thaw(frozen)
        try:
            until(lambda: stays.action("stats", {"topic": topic}).result(), "it goes on")
            for call in calls:
                call()
            answer = httpx.get(f"{asked['http_url']}/v1/topics/{topic}/stats", timeout=60)
            assert answer.status_code == 200
        finally:
            stays.close()
