"""A broker in a program of its own, for the question `topics`: it makes topics, or only starts.

Room: bench. `python -m bench.topic_life FOLDER COUNT THREADS` makes topics and is then killed by
itself: nothing is closed. With COUNT 0 it starts on what is there. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.machine import memory_bytes
from dejaqueue.broker.broker import Broker
from dejaqueue.journal.interface import SnapshotFile
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.journal.segments.snapshots import SnapshotFiles
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings

IDLE_SECONDS = 5.0


class WrittenBytes:
    """Bytes that journals append and that go into snapshots, counted where they are written."""

    def __init__(self) -> None:
        self.snapshots = 0
        self._journals: list[SegmentJournal] = []
        put, make = SnapshotFiles.put, SegmentJournal.__init__

        def counted_put(files: SnapshotFiles, *args: object, **named: object) -> None:
            given: list[SnapshotFile] = args[2]  # type: ignore[assignment]
            self.snapshots += sum(len(one.content or b"") for one in given)
            put(files, *args, **named)  # type: ignore[arg-type]

        def counted_make(journal: SegmentJournal, *args: object, **named: object) -> None:
            make(journal, *args, **named)  # type: ignore[arg-type]
            self._journals.append(journal)

        SnapshotFiles.put = counted_put  # type: ignore[method-assign,assignment]
        SegmentJournal.__init__ = counted_make  # type: ignore[method-assign,assignment]

    @property
    def total(self) -> int:
        """Both together."""
        return self.snapshots + sum(journal.appended_bytes for journal in self._journals)


def make(brokers: Sequence[Broker], numbers: range, threads: int) -> None:
    """Make topics, so many callers at a time, each of these brokers in its turn."""

    def work(first: int) -> None:
        for number in numbers[first::threads]:
            brokers[number % len(brokers)].create_topic(Topic(f"topic-{number:06d}"))

    with ThreadPoolExecutor(threads) as workers:
        list(workers.map(work, range(threads)))


def main() -> None:
    """See the module."""
    folder, count, threads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    written, found = WrittenBytes(), dict[str, float]()
    broker = Broker(BrokerSettings(journal=JournalSettings(url=str(folder))))
    empty = memory_bytes(os.getpid())["anonymous"]
    began, processor = time.perf_counter(), time.process_time()
    broker.start()
    found["start"] = time.perf_counter() - began
    found["start_processor"] = time.process_time() - processor
    if count:
        make([broker], range(threads), threads)  # so that threads, files and code are there
        empty, bytes_before = memory_bytes(os.getpid())["anonymous"], written.total
        began = time.perf_counter()
        make([broker], range(threads, count), threads)
        found["made"] = (count - threads) / (time.perf_counter() - began)
        found["bytes"] = (written.total - bytes_before) / (count - threads)
    found["topics"] = broker.topic_count
    memory = memory_bytes(os.getpid())["anonymous"] - empty
    found["memory"] = memory / broker.topic_count
    found["open_files"] = len(os.listdir("/proc/self/fd"))
    processor = time.process_time()
    time.sleep(IDLE_SECONDS)
    found["idle"] = 100 * (time.process_time() - processor) / IDLE_SECONDS
    print(json.dumps(found), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
