"""Covers: appends to one stream for several partitions: together, in order, fenced one by one.

Not covered: servers (tests/conformance/test_records_nats.py, tests/cluster).
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from dejaqueue.connections.nats.answers import NO_STREAM, WRONG_LAST, ApiRefusal, Reply
from dejaqueue.connections.nats.connection import Message, NatsConnection
from dejaqueue.errors import DejaQError, Fenced, ResourceExhausted, Unavailable
from dejaqueue.journal.records.nats.reading import NUMBER, SUM, checksum
from dejaqueue.journal.records.nats.shard import (
    BATCH_BYTES,
    BATCH_RECORDS,
    EXPECTED,
    SETTLE_MS,
    SMALL_BYTES,
    TRIES_MAX,
    Shard,
    batches,
)
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import PATIENCE_SECONDS

NAME = "one-records-0007"


class PlayedStream:
    """A connection to one stream, which stores messages as a server does.

    Attributes:
        messages: (subject, headers, content) of each, by its sequence less one.
        before: called before each append is compared, with its messages.
        answer: what an append is answered instead, if it is not None.
        last: the sequence that the leader says, if it is not None.
        asked: how often the leader was asked for the last record of a subject.
        leader_lacks: subjects whose records the leader's disk has lost.
    """

    def __init__(self) -> None:
        self.messages: list[tuple[str, dict[str, str], bytes]] = []
        self.appends: list[list[Message]] = []
        self.before: Callable[[Sequence[Message]], None] = lambda messages: None
        self.answer: Callable[[], dict[str, Any] | None] | None = None
        self.last: int | None = None
        self.leader_lacks: set[str] = set()
        self.infos = self.asked = 0

    def look_up(self, name: str, asked: object = None) -> dict[str, Any]:
        if name == f"STREAM.MSG.GET.{NAME}":
            self.asked += 1
            return self._leader_has(cast(dict[str, str], asked)["last_by_subj"])
        assert name == f"STREAM.INFO.{NAME}"
        self.infos += 1
        last = len(self.messages) if self.last is None else self.last
        return {"state": {"last_seq": last}}

    def publish_each(self, messages: Sequence[Message], timeout_s: float = 1) -> list[Reply | None]:
        if messages[0].subject.startswith("$JS.API."):
            return [self._last_of(one) for one in messages]
        self.before(messages)
        self.appends.append(list(messages))
        if self.answer is not None:
            answer = self.answer()
            return [None if answer is None else Reply("", json.dumps(answer).encode())]
        if int(messages[0].headers[EXPECTED]) != len(self.messages):
            return [_refusal(WRONG_LAST)]
        self.store(*[(one.subject, dict(one.headers), one.content) for one in messages])
        return [Reply("", json.dumps({"seq": len(self.messages)}).encode())]

    def store(self, *messages: tuple[str, dict[str, str], bytes]) -> None:
        self.messages += messages

    def put(self, subject: str, number: int) -> None:
        """Somebody else appends."""
        self.store((subject, {NUMBER: str(number), SUM: checksum(b"", number)}, b""))

    def _of(self, subject: str) -> tuple[int, dict[str, str], bytes] | None:
        for sequence, (one, headers, content) in reversed([*enumerate(self.messages, 1)]):
            if one == subject:
                return sequence, headers, content
        return None

    def _last_of(self, message: Message) -> Reply | None:
        subject = json.loads(message.content)["last_by_subj"]
        found = self._of(subject)
        if found is None:
            return Reply("", b"", {"Status": "404"})
        sequence, headers, content = found
        return Reply(subject, content, headers | {"Nats-Sequence": str(sequence)})

    def _leader_has(self, subject: str) -> dict[str, Any]:
        found = None if subject in self.leader_lacks else self._of(subject)
        if found is None:
            raise ApiRefusal("no message found", 404, 10037)
        sequence, headers, content = found
        lines = ["NATS/1.0", *(f"{name}: {value}" for name, value in headers.items())]
        return {
            "message": {
                "subject": subject,
                "seq": sequence,
                "data": base64.b64encode(content).decode(),
                "hdrs": base64.b64encode("\r\n".join(lines).encode()).decode(),
            }
        }

    def numbers(self, subject: str) -> list[int]:
        return [int(headers[NUMBER]) for one, headers, _ in self.messages if one == subject]


def _refusal(number: int) -> Reply:
    error = {"code": 400, "err_code": number, "description": "refused"}
    return Reply("", json.dumps({"error": error}).encode())


@pytest.fixture
def stream() -> PlayedStream:
    return PlayedStream()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def shard(stream: PlayedStream, clock: VirtualClock) -> Shard:
    return Shard(cast(NatsConnection, stream), NAME, clock, takes_batches=True)


def sizes(contents: list[bytes], takes_batches: bool = True) -> list[list[int]]:
    return [[len(one) for one in batch] for batch in batches(contents, takes_batches)]


def test_small_records_go_together_and_large_ones_alone() -> None:
    small, large = b"x" * 10, b"x" * (SMALL_BYTES + 1)
    assert sizes([small, small, large, small]) == [[10, 10], [SMALL_BYTES + 1], [10]]
    assert sizes([large, large]) == [[SMALL_BYTES + 1]] * 2
    assert sizes([small] * 3, takes_batches=False) == [[10]] * 3


def test_a_batch_has_a_most_of_bytes_and_of_records() -> None:
    most = BATCH_BYTES // SMALL_BYTES
    assert [len(one) for one in sizes([b"x" * SMALL_BYTES] * (2 * most + 1))] == [most, most, 1]
    assert [len(one) for one in sizes([b""] * (BATCH_RECORDS + 1))] == [BATCH_RECORDS, 1]


def test_each_partition_has_numbers_of_its_own(stream: PlayedStream, shard: Shard) -> None:
    assert shard.append("p", 0, [b"1", b"2"]) == [1, 2]
    assert shard.append("q", 0, [b"1"]) == [3]
    assert shard.append("p", 2, [b"3"]) == [4]
    assert (stream.numbers("p"), stream.numbers("q")) == ([1, 2, 3], [1])
    assert shard.last_of("p") == (3, 4)
    assert shard.last_of("nobody") == (0, 0)


def test_what_was_looked_at_is_not_asked_for_again__while_nobody_else_appends(
    stream: PlayedStream, shard: Shard
) -> None:
    """A broker that takes over opens many partitions of a stream, and appends to each."""
    for subject in "pqr":
        stream.put(subject, 1)
    assert [shard.last_of(subject) for subject in "pqr"] == [(1, 1), (1, 2), (1, 3)]
    assert stream.asked == 3
    for subject in "pqr":
        shard.append(subject, 1, [b"2"])
    assert shard.last_of("q") == (2, 5)
    assert stream.asked == 3
    stream.put("q", 3)
    shard.append("p", 2, [b"3"])
    with pytest.raises(Fenced):
        shard.append("q", 2, [b"mine"])
    assert stream.asked > 3


def test_what_waits_goes_together_in_one_append(stream: PlayedStream, shard: Shard) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def hold(messages: Sequence[Message]) -> None:
        began.set()
        assert goes_on.wait(PATIENCE_SECONDS)

    stream.before = hold
    threads = [threading.Thread(target=shard.append, args=("first", 0, [b"x"]))]
    threads[0].start()
    assert began.wait(PATIENCE_SECONDS)
    for number in range(5):
        threads.append(threading.Thread(target=shard.append, args=(f"p{number}", 0, [b"x"])))
        threads[-1].start()
    while len(shard._line) < 5:
        assert threads[-1].is_alive()
    goes_on.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    assert [len(messages) for messages in stream.appends] == [1, 5]
    assert {one.headers.get("Nats-Batch-Commit") for one in stream.appends[1]} == {None, "1"}


def test_who_appends_elsewhere_than_behind_the_last_is_fenced__and_nobody_else(
    stream: PlayedStream, shard: Shard
) -> None:
    shard.append("p", 0, [b"1"])
    stream.put("q", 1)  # of another broker, which has the partition now
    stream.put("r", 1)
    with pytest.raises(Fenced, match="q: the last record is not 0"):
        shard.append("q", 0, [b"mine"])
    shard.append("p", 1, [b"2"])
    shard.append("r", 1, [b"2"])
    assert (stream.numbers("p"), stream.numbers("q")) == ([1, 2], [1])


def test_a_broker_that_comes_between_is_only_slower(stream: PlayedStream, shard: Shard) -> None:
    shard.append("p", 0, [b"1"])
    others = iter(range(1, 4))

    def between(messages: Sequence[Message]) -> None:
        number = next(others, 0)
        if number:
            stream.put("other", number)

    stream.before = between
    shard.append("p", 1, [b"2"])
    assert (stream.numbers("p"), stream.numbers("other")) == ([1, 2], [1, 2, 3])
    assert len(stream.appends) == 5


def test_a_stream_that_others_append_to_all_the_time_is_given_up(
    stream: PlayedStream, shard: Shard
) -> None:
    stream.before = lambda messages: stream.put("other", len(stream.messages) + 1)
    with pytest.raises(Unavailable, match="others append to it all the time"):
        shard.append("p", 0, [b"1"])
    assert len(stream.appends) == TRIES_MAX
    stream.before = lambda messages: None
    shard.append("p", 0, [b"1"])


def test_a_dropped_log_fences_who_knew_its_last_number(stream: PlayedStream, shard: Shard) -> None:
    shard.append("p", 0, [b"1"])
    stream.messages[0] = ("purged", {}, b"")
    stream.put("mark", 0)
    with pytest.raises(Fenced):
        shard.append("p", 1, [b"2"])
    shard.append("p", 0, [b"1"])
    assert stream.numbers("p") == [1]


def test_a_record_that_is_not_agreed_on_fences_nobody(
    stream: PlayedStream, shard: Shard, clock: VirtualClock
) -> None:
    shard.append("p", 0, [b"1"])
    stream.put("q", 1)
    stream.last = 1  # the leader has proposed it, and says what is agreed on

    def later(_: Sequence[Message]) -> None:
        clock.advance(ms=SETTLE_MS + 1)

    stream.before = later
    ticking = threading.Event()

    def tick() -> None:
        while not ticking.wait(0.001):
            clock.advance(ms=100)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        with pytest.raises(Unavailable, match="a record behind 1 is not agreed on"):
            shard.append("p", 1, [b"2"])
    finally:
        ticking.set()
        thread.join(PATIENCE_SECONDS)
    stream.last = None
    shard.append("p", 1, [b"2"])


def test_a_lost_answer_is_unavailable_to_all_of_the_turn__and_nothing_is_sent_twice(
    stream: PlayedStream, shard: Shard
) -> None:
    shard.append("p", 0, [b"1"])
    stream.answer = lambda: None
    with pytest.raises(Unavailable, match="no answer"):
        shard.append("p", 1, [b"2"])
    assert len(stream.appends) == 2
    stream.answer = None
    infos = stream.infos
    shard.append("p", 1, [b"2"])
    assert stream.infos > infos, "what is there is asked for anew"
    assert stream.numbers("p") == [1, 2]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"error": {"code": 500, "err_code": 10047, "description": "full"}}, ResourceExhausted),
        ({"error": {"code": 503, "err_code": 10008, "description": "later"}}, Unavailable),
        ({"seq": 99}, Unavailable),
    ],
)
def test_other_answers_are_told_as_what_they_are(
    answer: dict[str, Any], error: type[Exception], stream: PlayedStream, shard: Shard
) -> None:
    stream.answer = lambda: answer
    with pytest.raises(error):
        shard.append("p", 0, [b"1"])
    stream.answer = None
    assert shard.append("p", 0, [b"1"]) == [1]


def test_behind_a_part_that_is_in_a_full_server_is_an_unknown_outcome(
    stream: PlayedStream, shard: Shard
) -> None:
    """What is in is in: whoever appends has to find out how much."""
    full = {"error": {"code": 500, "err_code": 10047, "description": "full"}}

    def fill(messages: Sequence[Message]) -> None:
        if stream.appends:
            stream.answer = lambda: full

    stream.before = fill
    large = b"x" * (SMALL_BYTES + 1)
    with pytest.raises(Unavailable, match="full.*behind a part of this append"):
        shard.append("p", 0, [large, large])
    assert stream.numbers("p") == [1]


def test_large_appends_of_two_partitions_take_turns(stream: PlayedStream, shard: Shard) -> None:
    large = b"x" * (SMALL_BYTES + 1)
    threads = [
        threading.Thread(target=shard.append, args=(subject, 0, [large] * 5))
        for subject in ("p", "q")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert stream.numbers("p") == stream.numbers("q") == [1, 2, 3, 4, 5]


def test_many_threads_append_to_many_partitions(stream: PlayedStream, shard: Shard) -> None:
    failed: list[DejaQError] = []

    def append(subject: str) -> None:
        try:
            for number in range(50):
                shard.append(subject, number, [b"x"])
        except DejaQError as error:
            failed.append(error)

    threads = [threading.Thread(target=append, args=(f"p{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert failed == []
    assert all(stream.numbers(f"p{one}") == list(range(1, 51)) for one in range(8))


def test_a_leader_that_has_lost_a_record_does_not_make_its_number_free(
    stream: PlayedStream, shard: Shard
) -> None:
    stream.put("p", 1)
    stream.leader_lacks.add("p")
    assert shard.last_of("p") == (1, 1)
    with pytest.raises(Fenced):
        shard.append("p", 0, [b"again"])
    shard.append("p", 1, [b"2"])
    assert stream.numbers("p") == [1, 2]


def test_a_stream_that_is_gone_is_no_empty_one(stream: PlayedStream, shard: Shard) -> None:
    def gone(name: str, asked: object = None) -> dict[str, Any]:
        raise ApiRefusal("stream not found", 404, NO_STREAM)

    stream.look_up = gone  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match=f"{NAME}: the stream is gone"):
        shard.append("p", 0, [b"1"])
