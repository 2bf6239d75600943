"""The next owners of slots: they read what they are to get while it is served here still.

Room: cluster. On the thread that hands a slot over, which waits.
Holds: a slot is handed over whether or not its next owner has read it: nobody is waited for longer
than AHEAD_SECONDS_MAX, and who was late or silent is not asked again for a minute.
See: handing_over.py; broker/topic/reading_ahead.py, what the next owner does; docs/adr/0103.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.threads import Threads
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import DejaQError, Unavailable

AHEAD_SECONDS_MAX = 15.0
"""What is not read until then its next owner reads while nobody serves it."""
ASK_AGAIN_US = 30_000
ANSWER_SECONDS_MAX = 2.0
SILENCES_MAX = 3
"""So often is a call repeated that got no answer."""
REST_US = 60_000_000
"""Whoever was late or silent is not asked for so long: each slot would wait for it anew."""

log = logging.getLogger("dejaqueue.cluster")


class NextOwners:
    """Has next owners read ahead.

    Args:
        threads: for what is waited for.
        clock: elapsed time.
    """

    def __init__(self, threads: Threads, clock: Clock) -> None:
        self._threads, self._clock = threads, clock
        self._rests_until_us: dict[str, int] = {}

    def have_read(self, broker: Broker, url: str, names: Collection[str]) -> None:
        """Return when a broker has read topics, or shards of some, or does not do so.

        Args:
            url: of the next owner.
        """
        if self._rests_until_us.get(url, 0) > self._clock.now_us():
            return
        until_us = self._clock.now_us() + round(AHEAD_SECONDS_MAX * 1e6)
        left, silences = list(names), 0
        while left:
            try:
                left = [name for name in left if not self._is_read(broker, url, name)]
            except Unavailable as error:
                silences += 1
                if silences == SILENCES_MAX:
                    log.info("%s does not read ahead: %s", url, error)
                    self._rest(url)
                    return
            except DejaQError as error:
                log.info("%s does not read ahead: %s", url, error)
                return
            if left and self._clock.now_us() >= until_us:
                log.info("%s has not read %s in time", url, ", ".join(left))
                self._rest(url)
                return
            if left:
                self._clock.wait_until(self._clock.now_us() + ASK_AGAIN_US, Wake())

    def _rest(self, url: str) -> None:
        self._rests_until_us[url] = self._clock.now_us() + REST_US

    def _is_read(self, broker: Broker, url: str, name: str) -> bool:
        """Ask for it. Raises whatever the other broker says, or Unavailable."""
        asked = broker.ask_to_read(url, name)
        if asked is None:
            return True
        answer: Future[dict[str, Any]] = self._threads.future()

        def tell(told: Future[dict[str, Any]]) -> None:
            if told.cancelled():  # the other broker is gone
                answer.set_exception(Unavailable(f"{url} is gone", 100))
            elif (wrong := told.exception()) is not None:
                answer.set_exception(wrong)
            else:
                answer.set_result(told.result())

        asked.add_done_callback(tell)
        try:
            return bool(answer.result(ANSWER_SECONDS_MAX)["is_read"])
        except TimeoutError:
            raise Unavailable(f"{url} does not answer", 100) from None
