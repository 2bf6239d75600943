"""Covers: how many files a broker has open and on the disk does not depend on how many topics are
used; what is idle takes next to no processor time.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from dejaqueue.journal.segments.store import SHARDS
from dejaqueue.model import Topic
from tests.rules.broker_fixture import BrokerFixture

TOPICS = 500
USED = 100
OPEN_MAX = 3 * (SHARDS + 1) + 1
"""A segment, its map and a spare of each log, of the catalogue's as well, and the lock."""
UNUSED_MAX = 4
"""The catalogue's and the lock."""


def open_files(broker: BrokerFixture) -> int:
    """Files below its directory that this process has open, or mapped."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it was closed meanwhile
            count += os.readlink(f"/proc/self/fd/{name}").startswith(f"{broker.path}/")
    return count


def files_of(directory: Path) -> int:
    """Files on the disk, directories left out."""
    return sum(len(files) for _, _, files in os.walk(directory))


def idle_percent(seconds: float) -> float:
    """Of a core, by all threads of this process, while nobody calls."""
    began = time.process_time()
    time.sleep(seconds)  # tidy: allow sleep, because it is measured what happens meanwhile
    return 100 * (time.process_time() - began) / seconds


def use(broker: BrokerFixture, first: int) -> None:
    for number in range(first, TOPICS, TOPICS // USED):
        assert broker.send([b"one"], topic=f"topic-{number}").error is None


def test_topics_that_are_used_share_their_files(tmp_path: Path) -> None:
    broker = BrokerFixture(tmp_path / "queue")
    for number in range(TOPICS):
        broker.broker.create_topic(Topic(f"topic-{number}"))
    assert open_files(broker) <= UNUSED_MAX, "topics that nobody used"
    use(broker, 0)
    once = open_files(broker), files_of(tmp_path)
    use(broker, 1)
    twice = open_files(broker), files_of(tmp_path)
    assert SHARDS <= once[0] <= twice[0] <= OPEN_MAX
    assert twice[1] <= once[1] + 2 * SHARDS, "files for each topic"
    assert min(idle_percent(0.5) for _ in range(5)) <= 1

    broker.crash()
    assert open_files(broker) <= UNUSED_MAX, "topics that nobody used since the start"
    use(broker, 2)
    assert open_files(broker) <= OPEN_MAX
    broker.stop()
