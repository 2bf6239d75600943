"""What a client is in the middle of when something happens to a broker, and what may come of it.

An operation is prepared, begun, ended when what happened is over, and then looked at by our own
client, which says what is there. Whatever happens, its answer is what came of it, or that this is
unknown (Unavailable); nothing else, and never none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from typing import Any, ClassVar

from dejaqueue import Client
from dejaqueue.clock import SystemClock
from tests.clients.drivers import ClientError, Speaker
from tests.clients.own_driver import OwnDriver
from tests.patience import until

UNKNOWN, REFUSED = 32, 20
HOUR_MS = 3_600_000
LEASE_MS = HOUR_MS // 4
"""Longer than any accident: a lease that is lost then was not lost by its end."""
SHORT_MS = 10_000
RETRY_MS = 120_000
COUNT = 3
Statuses = list[str]


def rows_of(prefix: str, count: int = COUNT, **fields: Any) -> list[dict[str, Any]]:
    """Messages with keys."""
    return [
        {"payload": b64encode(b"%d" % n).decode(), "key": f"{prefix}{n}"} | fields
        for n in range(count)
    ]


def keys_of(prefix: str, count: int = COUNT) -> list[str]:
    """Their keys."""
    return [row["key"] for row in rows_of(prefix, count)]


class Operation(ABC):
    """One client in the middle of one operation.

    Args:
        topic: of the broker that something happens to.
        other: of another broker.
    """

    words: ClassVar[str]
    is_planned = True
    """Whether a broker that leaves says so before, where the operation would be another one."""
    repeats: ClassVar[bool] = False
    """Whether it is made again by itself, so that its outcome is never unknown."""

    def __init__(self, client: Speaker | OwnDriver, topic: str, other: str) -> None:
        self.client, self.topic, self.other = client, topic, other
        self.is_own = isinstance(client, OwnDriver)

    def prepare(self, **connect: Any) -> None:
        """Everything before it, while all is well."""
        self.client.call("connect", retry_ms=RETRY_MS, **connect)

    @abstractmethod
    def begin(self) -> None:
        """Begin it, and do not wait."""

    @abstractmethod
    def end(self) -> None:
        """What it answered, and what a program would do then."""

    @abstractmethod
    def check(self, ours: Client) -> None:
        """It is as the answers said."""

    def close(self) -> None:
        """Let go of it."""
        self.client.call("close")

    def statuses(self, allowed: set[str]) -> Statuses | None:
        """The statuses that it answers; None = it says that they are unknown."""
        try:
            found: Statuses = self.client.answer()["statuses"]
        except ClientError as error:
            assert error.number == UNKNOWN, error
            assert not self.repeats, f"it may be repeated, and was not: {error}"
            return None
        assert set(found) <= allowed, found
        return found

    def until_told(self, do: str, **fields: Any) -> dict[str, Any]:
        """Ask until there is an answer: what a program does whose outcome is unknown."""
        answer: dict[str, Any] = {}

        def is_told() -> bool:
            try:
                answer.update(self.client.call(do, **fields))
            except ClientError as error:
                assert error.number == UNKNOWN, error
                return False
            return True

        until(is_told, f"an answer to {do}")
        return answer

    def there(self, ours: Client, topic: str = "") -> dict[str, dict[str, Any]]:
        """The messages that live, by key. Each is there once."""
        rows = ours.peek(topic or self.topic, limit=1_000).to_pylist()
        found = {row["key"]: row for row in rows}
        assert len(found) == len(rows), sorted(row["key"] for row in rows)
        return found


class Send(Operation):
    words, repeats = "send", True

    def begin(self) -> None:
        self.client.begin("send", topic=self.topic, rows=rows_of("k"))

    def end(self) -> None:
        assert self.statuses({"OK"}) == ["OK"] * COUNT

    def check(self, ours: Client) -> None:
        assert sorted(self.there(ours)) == keys_of("k")


class SendEach(Operation):
    words, repeats = "send each alone", True

    def begin(self) -> None:
        self.client.begin("send_each", topic=self.topic, rows=rows_of("k", 8))

    def end(self) -> None:
        answers = self.client.answer()["answers"]
        assert [one.get("statuses") for one in answers] == [["OK"]] * 8, answers

    def check(self, ours: Client) -> None:
        assert sorted(self.there(ours)) == keys_of("k", 8)


class _Later(Operation):
    """About messages that are due much later."""

    def prepare(self, **connect: Any) -> None:
        super().prepare(**connect)
        self.due_ms = SystemClock().now_ms() + HOUR_MS
        rows = rows_of("k", due_ms=self.due_ms)
        self.ids = self.client.call("send", topic=self.topic, rows=rows)["ids"]


class Move(_Later):
    words = "move"

    def begin(self) -> None:
        rows = [{"id": one, "due_ms": self.due_ms + HOUR_MS} for one in self.ids]
        self.client.begin("move", topic=self.topic, rows=rows)

    def end(self) -> None:
        self.found = self.statuses({"OK"})

    def check(self, ours: Client) -> None:
        dues = {row["due"] for row in self.there(ours).values()}
        moved = {self.due_ms + HOUR_MS}
        assert dues == moved if self.found else dues <= moved | {self.due_ms}


class Cancel(_Later):
    words = "cancel"

    def begin(self) -> None:
        self.client.begin("cancel", topic=self.topic, ids=self.ids)

    def end(self) -> None:
        if self.statuses({"OK"}) is None:
            again = self.until_told("cancel", topic=self.topic, ids=self.ids)
            assert set(again["statuses"]) <= {"OK", "NOT_FOUND"}, again

    def check(self, ours: Client) -> None:
        assert self.there(ours) == {}


class _Taken(Operation):
    """About messages that a consumer has."""

    def prepare(self, **connect: Any) -> None:
        super().prepare(**connect)
        self.client.call("send", topic=self.topic, rows=rows_of("k"))
        lease_ms = LEASE_MS if self.is_planned else SHORT_MS
        self.client.call("consume", topic=self.topic, credit=50, lease_ms=lease_ms)
        self.seen = set(keys_of("k"))
        self.ids = self.take(COUNT)

    def take(self, count: int) -> list[str]:
        """Receive so many."""
        ids: list[str] = []

        def is_enough() -> bool:
            ids.extend(row["id"] for row in self.client.receive(count - len(ids), wait_ms=1_000))
            return len(ids) == count

        until(is_enough, "messages")
        return ids

    def settled(self, do: str, **fields: Any) -> None:
        """The answer to a settle. Ours is sent again by itself, and may find its own work done."""
        allowed = {"OK", "LEASE_LOST"} if self.is_own else {"OK"}
        if self.statuses(allowed) is None:
            again = self.until_told(do, ids=self.ids, **fields)
            assert set(again["statuses"]) <= {"OK", "LEASE_LOST"}, again

    def close(self) -> None:
        self.client.call("close_consumer")
        super().close()


class Ack(_Taken):
    words = "ack"

    def begin(self) -> None:
        self.client.begin("ack", ids=self.ids)

    def end(self) -> None:
        self.settled("ack")

    def check(self, ours: Client) -> None:
        assert self.there(ours) == {}


class AckAsync(_Taken):
    words = "ack without waiting"

    def begin(self) -> None:
        self.client.begin("ack_async", ids=self.ids)
        self.client.begin("flush")

    def end(self) -> None:
        self.client.answer()
        self.client.answer()

    def check(self, ours: Client) -> None:
        assert self.there(ours) == {}


class Nack(_Taken):
    words = "nack"

    def begin(self) -> None:
        self.client.begin("nack", ids=self.ids, delay_ms=HOUR_MS)

    def end(self) -> None:
        self.settled("nack", delay_ms=HOUR_MS)

    def check(self, ours: Client) -> None:
        soon = SystemClock().now_ms() + HOUR_MS // 2
        found = self.there(ours)
        assert sorted(found) == keys_of("k")
        assert all(row["state"] == "scheduled" and row["due"] > soon for row in found.values())


class Extend(_Taken):
    words = "extend"

    def begin(self) -> None:
        self.client.begin("extend", ids=self.ids, lease_ms=HOUR_MS)

    def end(self) -> None:
        if self.statuses({"OK"}) is None:
            again = self.until_told("extend", ids=self.ids, lease_ms=HOUR_MS)
            assert again["statuses"] == ["OK"] * COUNT, again

    def check(self, ours: Client) -> None:
        found = self.there(ours)
        assert [row["state"] for row in found.values()] == ["leased"] * COUNT
        if not self.is_own:  # ours extends by itself, too, and not so far
            soon = SystemClock().now_ms() + HOUR_MS // 2
            assert all(row["due"] > soon for row in found.values())


class HandOver(_Taken):
    """A broker that is killed, or thought dead, may have leased what it never sent: that comes when
    its lease ends. One that hands over has sent it, or given it back (ADR 90)."""

    words = "consume on, and ack what was taken before"

    def begin(self) -> None:
        self.client.begin("send", topic=self.topic, rows=rows_of("l"))

    def end(self) -> None:
        assert self.client.answer()["statuses"] == ["OK"] * COUNT
        until(lambda: self._take_some() >= set(keys_of("k") + keys_of("l")), "all have come")

    def _take_some(self) -> set[str]:
        rows = self.client.receive(2 * COUNT, wait_ms=500)
        self.ids = list(dict.fromkeys(self.ids + [row["id"] for row in rows]))
        self.seen |= {row["key"] for row in rows}
        return self.seen

    def check(self, ours: Client) -> None:
        def is_empty() -> bool:
            self._take_some()
            statuses = self.until_told("ack", ids=self.ids)["statuses"]
            assert set(statuses) <= {"OK", "LEASE_LOST"}, statuses
            return self.there(ours) == {}

        until(is_empty, "all is acked")


class _Transaction(_Taken):
    """Sends and acks in topics of several brokers."""

    def prepare(self, **connect: Any) -> None:
        super().prepare(**connect)
        self.client.call("begin", topic=self.topic, timeout_ms=600_000)
        for topic in (self.topic, self.other):
            self.client.call("tx_send", topic=topic, rows=rows_of("t"))

    def commit(self) -> None:
        """Until it is told that it is committed."""
        self.until_told("commit")

    def check_whole(self, ours: Client, *, taken_count: int = 0) -> None:
        """All of it counts."""
        assert sorted(self.there(ours)) == sorted(keys_of("k", taken_count) + keys_of("t"))
        assert sorted(self.there(ours, self.other)) == keys_of("t")


class Commit(_Transaction):
    words, repeats = "commit", True

    def prepare(self, **connect: Any) -> None:
        super().prepare(**connect)
        assert self.client.call("tx_ack", ids=self.ids)["statuses"] == ["OK"] * COUNT

    def begin(self) -> None:
        self.client.begin("commit")

    def end(self) -> None:
        self.client.answer()

    def check(self, ours: Client) -> None:
        self.check_whole(ours)


class Stage(_Transaction):
    words, repeats = "send in a transaction", True

    def begin(self) -> None:
        self.client.begin("tx_send", topic=self.topic, rows=rows_of("u"))

    def end(self) -> None:
        assert self.client.answer()["statuses"] == ["OK"] * COUNT
        self.commit()

    def check(self, ours: Client) -> None:
        assert sorted(self.there(ours)) == keys_of("k") + keys_of("t") + keys_of("u")
        assert sorted(self.there(ours, self.other)) == keys_of("t")


class StageAck(_Transaction):
    words = "ack in a transaction"

    def begin(self) -> None:
        self.client.begin("tx_ack", ids=self.ids)

    def end(self) -> None:
        """An ack that was staged twice is one that lost its lease: nothing is committed then."""
        try:
            self.is_whole = set(self.client.answer()["statuses"]) == {"OK"}
        except ClientError as error:
            assert error.number in (UNKNOWN, REFUSED), error
            self.is_whole = False
        self.until_told("commit" if self.is_whole else "abort")

    def check(self, ours: Client) -> None:
        if self.is_whole:
            self.check_whole(ours)
        else:
            assert sorted(self.there(ours)) == keys_of("k")
            assert self.there(ours, self.other) == {}


OPERATIONS: tuple[type[Operation], ...] = (
    Send,
    SendEach,
    Move,
    Cancel,
    Ack,
    AckAsync,
    Nack,
    Extend,
    HandOver,
    Commit,
    Stage,
    StageAck,
)
