"""Looks whether TLS files have changed, and has them taken up anew.

Room: access. A thread that reads a few small files now and then; nothing of messages.
Holds: files that are wrong, or written only half, change nothing and are looked at again; what is
wrong is logged once, not at each look.
See: tls.py; cli/serve.py, where SIGHUP asks for a look at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Protocol

from dejaqueue.clock import Clock, SteadyClock, Wake
from dejaqueue.errors import DejaQError

log = logging.getLogger("dejaqueue.tls")


class Reloadable(Protocol):
    """What has files, as ServerTls and BrokerPapers do."""

    def reload(self) -> bool:
        """Take them up anew if they have changed; True if they had. Raises DejaQError."""
        ...


class TlsWatch:
    """Looks at files on a thread of its own between `start` and `stop`, and whenever it is asked.

    It reads them anew each time rather than have the system tell: directories that Kubernetes
    mounts change by a symbolic link two levels up, and network file systems tell nothing.

    Args:
        watched: by the words that the log has for each.
        period_ms: between two looks; 0 = only when `look` is called.
    """

    def __init__(
        self, watched: Mapping[str, Reloadable], period_ms: int, clock: Clock | None = None
    ) -> None:
        self._watched = dict(watched)
        self._period_us = period_ms * 1_000
        self._clock = clock or SteadyClock()
        self._mutex = threading.Lock()
        self._said: dict[str, str] = {}
        self._stopping = False
        self._bell = Wake()
        self._thread = threading.Thread(target=self._run, name="dejaq-tls", daemon=True)

    def start(self) -> None:
        """Look from now on, if there is anything to look at."""
        if self._watched and self._period_us:
            self._thread.start()

    def stop(self) -> None:
        """Look no more. Twice or before start is fine."""
        self._stopping = True
        self._bell.ring()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Take up what has changed, and say so. Any thread may call."""
        with self._mutex:
            for words, one in self._watched.items():
                try:
                    if one.reload():
                        log.info("%s: the files were taken up anew", words)
                    self._said.pop(words, None)
                except DejaQError as wrong:
                    self._say_once(words, str(wrong))

    def _say_once(self, words: str, wrong: str) -> None:
        if self._said.get(words) != wrong:
            self._said[words] = wrong
            log.error("%s: the files of before stay in use: %s", words, wrong)

    def _run(self) -> None:
        while not self._stopping:
            self._clock.wait_until(self._clock.now_us() + self._period_us, self._bell)
            if not self._stopping:
                self.look()
