"""Clients that keep a broker busy over its deaths, and note what they were told."""

from __future__ import annotations

import threading
from collections.abc import Callable

from dejaqueue import Client
from tests.crash.history import History
from tests.crash.test_broker_kill import TOPIC, consume, drain, produce


class Load:
    """Two producers and two consumers of one topic."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.history = History()
        self._stop_producing, self._stop_consuming = threading.Event(), threading.Event()
        self._failures: list[BaseException] = []
        self._producers: list[threading.Thread] = []
        self._consumers: list[threading.Thread] = []

    def begin(self) -> None:
        """Make the topic and begin."""
        with Client(self._url) as client:
            client.create_topic(TOPIC, partitions=2)
        self._producers = [
            self._run(produce, self._url, self.history, n, self._stop_producing) for n in range(2)
        ]
        self._consumers = [
            self._run(consume, self._url, self.history, self._stop_consuming) for _ in range(2)
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

    def end(self, *, drained: bool = True) -> None:
        """Send no more, have everything consumed, and stop."""
        self._stop_producing.set()
        for thread in self._producers:
            thread.join(60)
        try:
            if drained:
                drain(self._url)
        finally:
            self._stop_consuming.set()
            for thread in self._consumers:
                thread.join(60)
        assert not self._failures, self._failures
