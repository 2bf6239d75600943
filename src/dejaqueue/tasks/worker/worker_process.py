"""A worker process: takes tasks and runs them, on threads or in a loop, until it is told to end.

    python -m dejaqueue.tasks.worker.worker_process '{"app": "mails:app", ...}'

Room: tasks.worker. Started by the supervisor, and tells it everything by the board.
Holds: SIGTERM, and the end of the supervisor, which closes its standard input, drain it: nothing
new is taken, what is at work is finished; leases are extended meanwhile.
See: supervisor.py; execution.py; client.run.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dejaqueue.client import AsyncConsumer, AsyncMessage, Consumer, Message, WorkOptions
from dejaqueue.errors import DejaQError
from dejaqueue.logs import set_up
from dejaqueue.operating_system import resident_bytes
from dejaqueue.settings import LogSettings
from dejaqueue.tasks.app import Tasks
from dejaqueue.tasks.execution import Execution
from dejaqueue.tasks.worker.board import Board
from dejaqueue.tasks.worker.loading import load

log = logging.getLogger("dejaqueue.tasks")

RSS_SECONDS = 0.5
"""Between two looks at the memory of the process."""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """What a worker process is told.

    Attributes:
        app: MODULE:NAME.
        board: path of its board.
        pool: threads or asyncio.
        concurrency: attempts at the same time.
        prefetch: messages held ahead, of each topic.
        lease_ms: how long they are its own without a word.
        topics: only these; () = all that the application has.
        log: settings of logs.
    """

    app: str
    board: str
    pool: str
    concurrency: int
    prefetch: int
    lease_ms: int
    topics: tuple[str, ...] = ()
    log: dict[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        """The command that starts it."""
        return [
            sys.executable,
            "-m",
            "dejaqueue.tasks.worker.worker_process",
            json.dumps(asdict(self)),
        ]

    @classmethod
    def from_json(cls, text: str) -> ProcessOptions:
        """What `command` said."""
        values: dict[str, Any] = json.loads(text)
        return cls(**values | {"topics": tuple(values["topics"])})


class WorkerProcess:
    """Runs until it is drained."""

    def __init__(self, options: ProcessOptions, app: Tasks) -> None:
        self._options, self._app = options, app
        self._board = Board(Path(options.board), options.concurrency, app.clock)
        self._execution = Execution(app, self._board)
        self._consumers: Sequence[Consumer | AsyncConsumer] = ()
        self._is_draining = False
        self._wants: WorkOptions = {"prefetch": options.prefetch, "lease_ms": options.lease_ms}
        self._places = threading.Semaphore(options.concurrency)
        self._wrong: list[DejaQError] = []

    def run(self) -> int:
        """Work until drained; the exit status."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the supervisor says when
        signal.signal(signal.SIGTERM, lambda *_: self.drain())
        threading.Thread(target=self._wait_for_orphanhood, name="dejaq-orphan", daemon=True).start()
        threading.Thread(target=self._watch_memory, name="dejaq-memory", daemon=True).start()
        self._app.create_all()
        topics = [
            t for t in self._app.topics() if t in (self._options.topics or self._app.topics())
        ]
        self._board.name_topics(topics)
        self._board.tasks.name([task.name for task in self._app])
        # What is loaded now stays: to look at all of it again holds every task for tens of
        # milliseconds.
        gc.collect()
        gc.freeze()
        if self._options.pool == "asyncio":
            asyncio.run(self._run_loop(topics))
        else:
            self._run_threads(topics)
        self._app.close()
        for wrong in self._wrong:
            log.error("the worker ends: %s", wrong)
        return self._wrong[0].exit_code if self._wrong else 0

    def drain(self) -> None:
        """Take nothing new. From any thread, and from a signal's handler."""
        self._is_draining = True
        for consumer in self._consumers:
            consumer.drain()

    def _begin(self, consumers: Sequence[Consumer | AsyncConsumer]) -> None:
        """These are all; told before there was anything to drain, they drain now."""
        self._consumers = consumers
        self._board.set_ready()
        if self._is_draining:
            self.drain()

    def _run_threads(self, topics: list[str]) -> None:
        consumers = [self._app.client.consume(topic, **self._wants) for topic in topics]
        self._begin(consumers)
        threads = [
            threading.Thread(target=self._consume, args=pair, name=f"dejaq-topic-{pair[0]}")
            for pair in zip(topics, consumers, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _consume(self, topic: str, consumer: Consumer) -> None:
        # Over all topics: each consumer would otherwise work on so many.
        places = self._places

        def work(message: Message) -> None:
            with places:
                self._execution.run(topic, message)

        try:
            consumer.run(work, concurrency=self._options.concurrency)
        except DejaQError as error:
            self._wrong.append(error)
            self.drain()

    async def _run_loop(self, topics: list[str]) -> None:
        places = asyncio.Semaphore(self._options.concurrency)
        async with self._app.async_client() as client:
            consumers = [client.consume(topic, **self._wants) for topic in topics]
            self._begin(consumers)
            pairs = zip(topics, consumers, strict=True)
            await asyncio.gather(*(self._consume_async(*pair, places) for pair in pairs))

    async def _consume_async(
        self, topic: str, consumer: AsyncConsumer, places: asyncio.Semaphore
    ) -> None:
        async def work(message: AsyncMessage) -> None:
            async with places:
                await self._execution.run_async(topic, message)

        try:
            await consumer.run(work, concurrency=self._options.concurrency)
        except DejaQError as error:
            self._wrong.append(error)
            self.drain()

    def _wait_for_orphanhood(self) -> None:
        """Standard input ends with the supervisor."""
        while os.read(0, 1):
            pass
        if not self._is_draining:
            log.warning("the supervisor has ended: finishing what is at work")
            self.drain()

    def _watch_memory(self) -> None:
        pause = threading.Event()
        while (byte_count := resident_bytes()) is not None:
            self._board.set_rss(byte_count)
            pause.wait(RSS_SECONDS)


def main() -> int:
    """Run a worker process."""
    options = ProcessOptions.from_json(sys.argv[1])
    set_up(LogSettings(**options.log))  # type: ignore[arg-type]
    return WorkerProcess(options, load(options.app)).run()


if __name__ == "__main__":
    _status = main()
    logging.shutdown()
    sys.stdout.flush()
    # The client is closed and all is said; threads of gRPC that are not yet gone can abort an
    # interpreter that is taken down around them.
    os._exit(_status)
