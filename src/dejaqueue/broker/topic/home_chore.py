"""What a shard of a topic tells its home, and does as that says.

Room: broker. A chore of the shard's first partition, on its worker; answers come on any thread.
Holds: one question at a time is on its way, and an answer to an earlier one is void; who is to have
a partition is the home's to say, when it changes hands is the partition's (holders.py).
See: homes.py; consumers/home_assignment.py; docs/guides/exclusive-consumers.md.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any

from dejaqueue.broker.consumers.dispatch import Dispatcher
from dejaqueue.broker.shard.chore import Chore
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.homes import ASSIGNMENT, Homes

REPORT_US = 500_000
"""How often a shard with consumers asks, if nothing changes: it hears of what changed elsewhere."""
SOON_US = 50_000
"""How often while the shards do not agree on who is there, or the home is not there."""
ANSWER_US = 6_000_000
"""Then no answer comes any more (flight/peers.py)."""


class HomeChore(Chore):
    """Keeps the exclusive assignment of one shard.

    Args:
        shard: its name.
        dispatcher: has its consumers.
        subscription: whose consumers they are; "" = the topic's own.
    """

    def __init__(
        self, shard: str, dispatcher: Dispatcher, homes: Homes, subscription: str = ""
    ) -> None:
        self._shard, self._subscription = shard, subscription
        self._dispatcher = dispatcher
        self._homes = homes
        self._serial = 0
        self._said: list[str] = []
        """The consumers that the home was told of last."""
        self._is_heard = True
        self._next_us = 0
        self._asked_us: int | None = None

    def next_us(self, core: PartitionCore) -> int | None:
        """When to ask, clock µs; None = there is nothing to agree on."""
        if not self._dispatcher.is_exclusive:
            return None
        if self._asked_us is not None:
            return self._asked_us + ANSWER_US
        is_needed = self._said or not self._is_heard or self._dispatcher.has_consumers
        return self._next_us if is_needed else None

    def step(self, core: PartitionCore) -> None:
        """Ask, if it is time or the consumers are others. Does not block."""
        sharing = self._dispatcher.sharing()
        if sharing is None:
            return
        now_us = core.clock.now_us()
        consumers, kept = sharing
        if self._asked_us is not None and now_us < self._asked_us + ANSWER_US:
            return  # the answer rings
        is_said = self._is_heard and not consumers
        if consumers == self._said and (is_said or now_us < self._next_us):
            return
        self._serial += 1
        self._said, self._is_heard = consumers, False
        self._asked_us = now_us
        given = {
            "subscription": self._subscription,
            "partitions": core.topic().partitions,
            "consumers": consumers,
            "kept": kept,
        }
        answered = partial(self._answered, core, self._serial)
        self._homes.ask(self._shard, ASSIGNMENT, given).add_done_callback(answered)

    def _answered(self, core: PartitionCore, serial: int, answer: Future[dict[str, Any]]) -> None:
        if serial != self._serial:
            return
        now_us = core.clock.now_us()
        if answer.cancelled() or answer.exception() is not None:
            self._next_us = now_us + SOON_US
        else:
            told = answer.result()
            self._is_heard = True
            self._next_us = now_us + (REPORT_US if told["is_settled"] else SOON_US)
            if told["targets"] is not None:
                targets = {int(number): str(one) for number, one in told["targets"].items()}
                self._dispatcher.tell(targets)
        self._asked_us = None
        core.ring()
