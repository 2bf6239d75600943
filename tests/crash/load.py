"""Clients that keep a broker busy over its deaths, and note what they were told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dejaqueue import Client
from tests.crash.history import History
from tests.crash.test_broker_kill import TOPIC, consume, drain, produce
from tests.patience import PATIENCE_SECONDS


class Load:
    """Producers and consumers of one topic.

    Args:
        settings: of the topic.
        pause_s: of a producer between two batches.

    Attributes:
        is_over: everything was consumed; nothing moves any more.
    """

    def __init__(
        self, url: str, topic: str = TOPIC, workers: int = 2, pause_s: float = 0.01, **settings: Any
    ) -> None:
        self._url = url
        self._topic = topic
        self._workers = workers
        self._pause_s = pause_s
        self._settings = {"partitions": 2} | settings
        self.history = History()
        self.is_over = False
        self._stop_producing, self._stop_consuming = threading.Event(), threading.Event()
        self._failures: list[BaseException] = []
        self._producers: list[threading.Thread] = []
        self._consumers: list[threading.Thread] = []

    def progress(self) -> int:
        """A number that changes as long as anybody gets anywhere."""
        return len(self.history.tried) + len(self.history.deliveries) + len(self.history.acked_us)

    def begin(self) -> None:
        """Make the topic and begin."""
        with Client(self._url) as client:
            client.create_topic(self._topic, **self._settings)
        rest = self._topic, self._pause_s
        self._producers = [
            self._run(produce, self._url, self.history, n, self._stop_producing, *rest)
            for n in range(self._workers)
        ]
        self._consumers = [
            self._run(consume, self._url, self.history, self._stop_consuming, self._topic)
            for _ in range(self._workers)
        ]

    def _run(self, function: Callable[..., None], *arguments: object) -> threading.Thread:
        def guarded() -> None:
            try:
                function(*arguments)
            except BaseException as error:  # noqa: BLE001 - shown at the end
                self._failures.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    def send_no_more(self) -> None:
        """Have producers stop, soon; `end` waits for them."""
        self._stop_producing.set()

    def end(self, *, drained: bool = True) -> None:
        """Send no more, have everything consumed, and stop."""
        self.send_no_more()
        for thread in self._producers:
            thread.join(PATIENCE_SECONDS)
        assert not self._failures, self._failures
        try:
            if drained:
                drain(self._url, self._topic)
        finally:
            self.is_over = True
            self._stop_consuming.set()
            for thread in self._consumers:
                thread.join(PATIENCE_SECONDS)
        assert not self._failures, self._failures
