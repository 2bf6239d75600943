from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.client import routed_transport
from dejaqueue.client.routed_transport import RoutedTransport, urls_of
from dejaqueue.errors import BadRequest, DejaQError, Elsewhere, Unavailable
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.patience import until

A, B, C = "dejaq://a:1", "dejaq://b:1", "dejaq://c:1"
ROW = pa.record_batch({"payload": [b"x"]})


class Brokers:
    """Brokers that note what they are asked, and answer what they were told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.repeats: list[bool] = []
        self.answers: dict[str, list[DejaQError]] = {}

    def answer(self, url: str) -> DejaQError | None:
        told = self.answers.get(url)
        return told.pop(0) if told else None

    def connect(self, url: str) -> Any:
        return Connection(self, url)


class Connection:
    def __init__(self, brokers: Brokers, url: str) -> None:
        self._brokers, self._url = brokers, url

    def action(
        self, name: str, body: dict[str, Any], *, repeats: bool = False
    ) -> Future[dict[str, Any]]:
        self._brokers.asked.append((self._url, name))
        self._brokers.repeats.append(repeats)
        answer: Future[dict[str, Any]] = Future()
        error = self._brokers.answer(self._url)
        if error is None:
            answer.set_result({"url": self._url})
        else:
            answer.set_exception(error)
        return answer

    def open_lane(self, stream: WriteStream) -> None:
        """There is none."""

    def open_write(self, stream: WriteStream, *, shared: bool = False) -> Connection:
        self._brokers.asked.append((self._url, f"write {stream.topic}"))
        return self

    def send(self, number: int, _batch: pa.RecordBatch) -> Future[Reply]:
        reply: Future[Reply] = Future()
        reply.set_result(Reply(number, 1, error=self._brokers.answer(self._url)))
        return reply

    def scan(self, _ticket: dict[str, Any]) -> Iterator[str]:
        error = self._brokers.answer(self._url)
        if error is not None:
            raise error
        yield self._url

    def close(self) -> None:
        self._brokers.asked.append((self._url, "close"))


def elsewhere(url: str) -> Elsewhere:
    return Elsewhere("not here", 1, "n", url, "")


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def routed(brokers: Brokers) -> Iterator[RoutedTransport]:
    transport = RoutedTransport([A, B], brokers.connect)
    yield transport
    transport.close()


def ask(routed: RoutedTransport, topic: str = "t", *, repeats: bool = False) -> str:
    values = routed.action("stats", {"topic": topic}, repeats=repeats).result(10)
    return str(values["url"])


def test_several_addresses_share_a_scheme() -> None:
    assert urls_of("dejaqs://a:1, b") == ["dejaqs://a:1", "dejaqs://b"]


@pytest.mark.parametrize("wrong", ["", "a:1", "http://a:1", "dejaq://a,,b", "dejaq://a:x"])
def test_what_is_no_address_is_refused(wrong: str) -> None:
    with pytest.raises(BadRequest, match="url"):
        urls_of(wrong)


def test_the_first_address_is_asked_first(routed: RoutedTransport, brokers: Brokers) -> None:
    assert ask(routed) == A
    assert brokers.asked == [(A, "stats")]


def test_a_topic_is_followed_and_remembered(routed: RoutedTransport, brokers: Brokers) -> None:
    brokers.answers[A] = [elsewhere(C)]
    assert ask(routed) == C
    assert ask(routed) == C
    assert ask(routed, "other") == A
    assert [url for url, _ in brokers.asked] == [A, C, C, A]


def test_a_topic_that_nobody_has_is_waited_for(routed: RoutedTransport, brokers: Brokers) -> None:
    brokers.answers[A] = [elsewhere(""), elsewhere(""), elsewhere(B)]
    assert ask(routed) == B


def nobody() -> Unavailable:
    error = Unavailable("failed to connect")
    error.is_unheard = True
    return error


def test_where_nobody_is_the_next_one_is_asked__each_once(
    routed: RoutedTransport, brokers: Brokers
) -> None:
    brokers.answers[A] = [nobody()]
    assert ask(routed) == B
    brokers.answers[B] = [elsewhere(C)]
    brokers.answers[C] = [nobody()]
    assert ask(routed) == B, "who served it is gone: whoever is there is asked"
    brokers.answers = {url: [nobody()] * 9 for url in (A, B, C)}
    brokers.asked = []
    with pytest.raises(Unavailable, match="failed to connect"):
        ask(routed)
    assert {url for url, _ in brokers.asked} == {A, B, C}
    assert len(brokers.asked) == 4, "each once, and the first one again"


def test_a_call_without_an_answer_is_not_made_again(
    routed: RoutedTransport, brokers: Brokers
) -> None:
    brokers.answers[A] = [Unavailable("gone")]
    with pytest.raises(Unavailable, match="gone"):
        ask(routed)
    assert ask(routed) == B  # the next call begins at another address


def silent(url: str) -> Unavailable:
    error = Unavailable(f"the broker at {url} does not answer")
    error.is_silent = True
    return error


def test_a_call_that_may_be_made_twice_leaves_a_broker_that_gives_no_sign_of_life(
    routed: RoutedTransport, brokers: Brokers
) -> None:
    brokers.answers[A] = [silent(A)]
    assert ask(routed, repeats=True) == B
    assert [url for url, _ in brokers.asked] == [A, B]
    assert brokers.repeats == [True, True]


def test_a_call_that_may_be_made_once_does_not(routed: RoutedTransport, brokers: Brokers) -> None:
    brokers.answers[A] = [silent(A)]
    with pytest.raises(Unavailable, match="a:1 does not answer"):
        ask(routed)
    assert brokers.repeats == [False]


def test_a_broker_that_is_alone_is_named__as_there_is_nowhere_to_go(brokers: Brokers) -> None:
    transport = RoutedTransport([A], brokers.connect)
    brokers.answers[A] = [silent(A)]
    with pytest.raises(Unavailable, match="a:1 does not answer") as caught:
        ask(transport, repeats=True)
    assert caught.value.is_silent
    assert len(brokers.asked) == 1, "whoever calls decides whether it is asked again"
    assert ask(transport, repeats=True) == A
    transport.close()


def test_a_topic_of_a_silent_broker_is_waited_for__until_another_one_has_it(
    routed: RoutedTransport, brokers: Brokers
) -> None:
    brokers.answers = {A: [elsewhere(C), elsewhere(C), elsewhere(C), elsewhere(B)], C: [silent(C)]}
    assert ask(routed, repeats=True) == B
    assert [url for url, _ in brokers.asked] == [A, C, A, A, A, B], "the silent one is asked once"


def test_a_silent_broker_that_keeps_its_topic_is_named(
    routed: RoutedTransport, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routed_transport, "FOLLOW_MS_MAX", 100)
    monkeypatch.setattr(routed_transport, "SILENT_RETRY_MS", 10)
    brokers.answers = {A: [elsewhere(C)] * 1_000, C: [silent(C)]}
    with pytest.raises(Unavailable, match="c:1 does not answer"):
        ask(routed, repeats=True)
    assert [url for url, _ in brokers.asked].count(C) == 1
    assert len(brokers.asked) > 3


def test_a_home_that_fell_silent_is_forgotten(routed: RoutedTransport, brokers: Brokers) -> None:
    brokers.answers[A] = [elsewhere(C)]
    brokers.answers[C] = [Unavailable("gone")]
    with pytest.raises(Unavailable):
        ask(routed)
    assert ask(routed) == A


def test_a_transaction_goes_where_its_home_is(routed: RoutedTransport, brokers: Brokers) -> None:
    brokers.answers[A] = [elsewhere(C)]
    ask(routed, "home")
    answer = routed.action("commit_transaction", {"transaction": "home/0/1-2-ab"}).result(10)
    assert answer["url"] == C


def test_a_stream_that_is_told_where_its_topic_went_is_opened_there_next(
    routed: RoutedTransport, brokers: Brokers
) -> None:
    batch = ROW
    brokers.answers[A] = [elsewhere(C)]
    stream = WriteStream("t")
    assert routed.open_write(stream).send(1, batch).result(10).error is not None
    routed.open_write(stream)
    assert [url for url, what in brokers.asked if what == "write t"] == [A, C]


def test_a_scan_is_followed(routed: RoutedTransport, brokers: Brokers) -> None:
    brokers.answers[A] = [elsewhere(C)]
    assert list(routed.scan({"topic": "t"})) == [C]


def test_closing_closes_every_connection(brokers: Brokers) -> None:
    transport = RoutedTransport([A, B], brokers.connect)
    brokers.answers[A] = [elsewhere(C)]
    ask(transport)
    transport.close()
    transport.close()
    assert {url for url, what in brokers.asked if what == "close"} == {A, C}
    with pytest.raises(Unavailable, match="closed"):
        ask(transport)


class Directory:
    """A resolver that says what it was told to."""

    def __init__(self, *answers: list[str] | DejaQError) -> None:
        self.answers = list(answers)
        self.asked = 0

    def look_up(self) -> list[str]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, DejaQError):
            raise answer
        return answer


@contextmanager
def found_by(brokers: Brokers, directory: Directory) -> Iterator[RoutedTransport]:
    transport = RoutedTransport([], brokers.connect, directory.look_up)
    try:
        yield transport
    finally:
        transport.close()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names may be looked up again at once."""
    monkeypatch.setattr(routed_transport, "LOOK_UP_US", -1)


def test_names_are_looked_up_before_the_first_call__and_once(brokers: Brokers) -> None:
    directory = Directory([A, B])
    with found_by(brokers, directory) as routed:
        assert directory.asked == 0
        assert [ask(routed), ask(routed, "other")] == [A, A]
    assert directory.asked == 1


def test_a_name_without_an_answer_fails_the_call__and_the_next_one_is_tried(
    brokers: Brokers, eager: None
) -> None:
    directory = Directory(nobody(), [B])
    with found_by(brokers, directory) as routed:
        with pytest.raises(Unavailable, match="failed to connect"):
            ask(routed)
        assert ask(routed) == B


def test_a_name_is_not_asked_in_a_circle(brokers: Brokers) -> None:
    directory = Directory(nobody())
    with found_by(brokers, directory) as routed:
        for _ in range(5):
            with pytest.raises(Unavailable, match="failed to connect"):
                ask(routed)
    assert directory.asked == 1


def test_where_all_are_gone_the_name_is_looked_up_again_in_the_same_call(
    brokers: Brokers, eager: None
) -> None:
    directory = Directory([A, B], [C])
    brokers.answers = {A: [nobody()] * 9, B: [nobody()] * 9}
    with found_by(brokers, directory) as routed:
        assert ask(routed) == C
        assert ask(routed) == C


def test_a_lost_stream_has_names_looked_up_again(brokers: Brokers, eager: None) -> None:
    directory = Directory([A], [B])
    with found_by(brokers, directory) as routed:
        assert ask(routed) == A
        brokers.answers[A] = [Unavailable("gone")]
        channel = routed.open_write(WriteStream("t"))
        with pytest.raises(Unavailable, match="gone"):
            raise channel.send(1, ROW).result(10).error or AssertionError
        until(lambda: directory.asked > 1)
        until(lambda: ask(routed) == B)


def test_who_left_the_name_is_kept_until_it_is_silent(brokers: Brokers, eager: None) -> None:
    directory = Directory([A, B], [B])
    with found_by(brokers, directory) as routed:
        assert ask(routed) == A
        brokers.answers[A] = [elsewhere(B)]
        assert ask(routed) == B
        routed._look_again()
        assert (A, "close") not in brokers.asked
        routed._learn("t", A, Unavailable("gone"))
        until(lambda: (A, "close") in brokers.asked)


def test_a_failed_look_leaves_what_is_known(brokers: Brokers, eager: None) -> None:
    directory = Directory([A, B], nobody())
    brokers.answers[A] = [nobody()]
    with found_by(brokers, directory) as routed:
        assert ask(routed) == B
    assert directory.asked > 1
