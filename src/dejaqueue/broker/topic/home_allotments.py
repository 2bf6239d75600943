"""Allotments of a topic's backlog, as its home gives them to the shards.

Room: broker. At the owner of the topic's first shard; any thread, and nothing here blocks.
Holds: what shards may hold is never more than the topic's limit, whoever dies, sleeps or hears
late: `known` is at least what the owner of a shard goes by, and more is given only out of what is
left of the limit beside it. A new home gives nothing before it knows what every shard has.
See: allotment_queue.py for the shard's side; docs/adr/0037-a-topic-in-shards-agrees.md, which says
why nothing of it is written.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.errors import Unavailable
from dejaqueue.model import Topic

PARTS = 4
"""Beside what it asks for, a shard gets so small a part of its even share, if there is as much."""
_UNBOUNDED = 1 << 62
QUESTIONS_MAX = 1_024

Given = dict[str, Any]


@dataclass(slots=True)
class _RoomRequest:
    """What a shard asks.

    Attributes:
        order: epoch of the shard's owner, and number of its question.
        has, wants: what it goes by, and how much more it needs.
    """

    shard: int
    order: tuple[int, int]
    has: Backlog
    wants: Backlog
    answer: Future[Given] = field(default_factory=Future)


class HomeAllotments:
    """What each shard of one topic may hold.

    Args:
        spread: how many shards there are.
        topic: its settings, read at each use.
        lower: ask a shard to keep so much less; its answer says what it keeps, as `count` and
            `byte_count`.
    """

    def __init__(
        self,
        spread: int,
        topic: Callable[[], Topic],
        lower: Callable[[int, Backlog], Future[Given]],
    ) -> None:
        self._spread = spread
        self._topic = topic
        self._lower = lower
        self._lock = threading.Lock()
        # Under the lock.
        self.known: dict[int, Backlog] = {}
        self._orders: dict[int, tuple[int, int]] = {}
        self._questions: deque[_RoomRequest] = deque()
        self._is_busy = False

    def ask(
        self, shard: int, order: tuple[int, int], has: Backlog, wants: Backlog
    ) -> Future[Given]:
        """More for a shard: `count` and `byte_count` that it may hold from then on, together.

        Fails with Unavailable: it is not known what others have, or this question is an old one.
        """
        question = _RoomRequest(shard, order, has, wants)
        with self._lock:
            if len(self._questions) < QUESTIONS_MAX:
                self._questions.append(question)
            else:
                question.answer.set_exception(Unavailable("too many shards ask", 100))
        self._go_on()
        return question.answer

    def _go_on(self) -> None:
        """Answer the next question, unless one is being answered."""
        while True:
            with self._lock:
                if self._is_busy or not self._questions:
                    return
                question = self._questions.popleft()
                is_old = question.order <= self._orders.get(question.shard, (-1, -1))
                if not is_old:
                    self._is_busy = True
                    self._orders[question.shard] = question.order
                    self._note(question.shard, question.has)
                    lacking = self._lacking(question)
            if is_old:
                question.answer.set_exception(Unavailable("a newer question was asked", 50))
            elif not self._fetch(question, lacking):
                self._finish(question)

    def _note(self, shard: int, has: Backlog) -> None:
        """A shard goes by so much, or by less: answers that it did not take up are void."""
        known = self.known.get(shard, has)
        least = min(known.count, has.count), min(known.byte_count, has.byte_count)
        self.known[shard] = Backlog(*least)

    def _lacking(self, question: _RoomRequest) -> Backlog:
        """How much others have to keep less, so that a question can be answered."""
        left = self._left()
        count = max(0, question.wants.count - left.count)
        return Backlog(count, max(0, question.wants.byte_count - left.byte_count))

    def _left(self) -> Backlog:
        """What of the limit nobody has; below 0 where it was lowered."""
        topic, given = self._topic(), sum(self.known.values(), Backlog())
        count, byte_count = (
            topic.max_backlog_count or _UNBOUNDED,
            topic.max_backlog_bytes or _UNBOUNDED,
        )
        return Backlog(count, byte_count) - given

    def _fetch(self, question: _RoomRequest, lacking: Backlog) -> bool:
        """Have other shards keep less, where that is needed; False = it is not."""
        others = [shard for shard in range(self._spread) if shard != question.shard]
        if lacking == Backlog():
            others = [shard for shard in others if shard not in self.known]
        if not others:
            return False
        left = [len(others)]

        def answered(shard: int, answer: Future[Given]) -> None:
            with self._lock:
                if not answer.cancelled() and answer.exception() is None:
                    kept = answer.result()
                    self.known[shard] = Backlog(int(kept["count"]), int(kept["byte_count"]))
                left[0] -= 1
                is_last = left[0] == 0
            if is_last:
                self._finish(question)
                self._go_on()

        for shard in others:
            self._lower(shard, lacking).add_done_callback(partial(answered, shard))
        return True

    def _finish(self, question: _RoomRequest) -> None:
        """Give what there is, and answer."""
        shard, wants = question.shard, question.wants
        with self._lock:
            self._is_busy = False
            knows_all = len(self.known) == self._spread
            if knows_all:
                left, topic = self._left(), self._topic()
                extra = PARTS * self._spread
                count = wants.count + topic.max_backlog_count // extra
                byte_count = wants.byte_count + topic.max_backlog_bytes // extra
                more = Backlog(
                    max(0, min(count, left.count)), max(0, min(byte_count, left.byte_count))
                )
                has = self.known[shard] = self.known[shard] + more
        if knows_all:
            question.answer.set_result({"count": has.count, "byte_count": has.byte_count})
        else:
            question.answer.set_exception(
                Unavailable("a shard of the topic is between two owners", 100)
            )
