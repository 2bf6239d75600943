"""Children of `dejaq serve --processes` end under load, and their parent does; then rules 1 to 6.

Covered: SIGKILL and SIGTERM of children, SIGKILL of the parent, which ends them, SIGTERM of it,
which has them hand over; one topic in two shards, so that each batch meets both processes. Looks,
asked while a process dies.
Not covered: the same of brokers with journals on a server (tests/cluster/test_kill.py).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from dejaqueue import Client
from tests.crash.broker_process import BrokerProcess
from tests.crash.load import Load
from tests.patience import until

TOPIC = "kill"
CYCLES = int(os.environ.get("DEJAQ_KILL_CYCLES", "1"))

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600 + 60 * CYCLES)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path / "data",
        tmp_path / "broker.log",
        server__processes=2,
        journal__segment_bytes=1 << 18,
        journal__snapshot_entries=150,
    )
    process.start()
    yield process
    process.kill()


def children_of(parent: int) -> list[int]:
    """Processes that a process has started, the oldest first."""
    found: list[int] = []
    for thread in Path(f"/proc/{parent}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended since it was listed
            found += map(int, (thread / "children").read_text().split())
    return sorted(found)


def is_gone(pid: int) -> bool:
    """True if a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_nothing_is_lost_early_or_twice__processes_end_under_load(broker: BrokerProcess) -> None:
    seed = int(os.environ.get("DEJAQ_KILL_SEED", random.randrange(1 << 30)))
    random.seed(seed)
    print(f"DEJAQ_KILL_SEED={seed}")
    load = Load(broker.url, TOPIC, partitions=2, spread=2, pause_s=0.02)
    load.begin()
    try:
        for _ in range(CYCLES):
            for number in (signal.SIGKILL, signal.SIGTERM):
                threading.Event().wait(random.uniform(1.0, 2.0))
                victim = random.choice(children_of(broker.pid))
                os.kill(victim, number)
                until(lambda victim=victim: is_gone(victim))  # type: ignore[misc]
                until(lambda: len(children_of(broker.pid)) == 2, "another one is started")
        threading.Event().wait(1.0)
        children = children_of(broker.pid)
        broker.kill()
        until(lambda: all(is_gone(child) for child in children), "children end with their parent")
        broker.start()
        threading.Event().wait(1.0)
    finally:
        load.end()
    history = load.history
    print(f"sent={len(history.sent)} got={len(history.deliveries)} acked={len(history.acked_us)}")
    assert len(history.acked_us) > 100
    assert history.faults()[:10] == []
    with Client(broker.url) as client:
        served = client.cluster(TOPIC)["topics"]
    assert {one["node"] for one in served} == {"process-1", "process-2"}
    with urlopen(f"http://127.0.0.1:{broker.http_port}/metrics") as page:
        text = page.read().decode()
    for one in served:
        assert f'dejaq_ready_state{{process="{one["node"]}"}} 1' in text
    children = children_of(broker.pid)
    assert broker.stop() == 0
    assert all(is_gone(child) for child in children)


def test_looks_are_answered_while_processes_that_share_the_address_die(
    broker: BrokerProcess,
) -> None:
    with Client(broker.url) as client:
        client.create_topic(TOPIC, partitions=2, spread=2)
        client.send_batch(TOPIC, [b"a", b"b"]).raise_for_status()
        for victim in children_of(broker.pid):
            os.kill(victim, signal.SIGKILL)
            # One that knows the processes, and one that knows nothing but the address.
            with Client(broker.url) as other:
                for one in (client, other):
                    assert sorted(one.peek(TOPIC)["payload"].to_pylist()) == [b"a", b"b"]
                    assert [topic.name for topic in one.topics()] == [TOPIC]
                    assert one.cluster()["nodes"]
                    assert one.counts(TOPIC)["scheduled"] == 2
            until(lambda: len(children_of(broker.pid)) == 2, "another one is started")
            until(lambda: len(client.cluster()["nodes"]) == 2, "it is back")
