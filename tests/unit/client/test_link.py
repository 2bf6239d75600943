"""Links: batches that outlive broken connections (rule 10)."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.client.link import BACKOFF_MS_MAX, WriteLink, backoff_ms
from dejaqueue.clock import SystemClock
from dejaqueue.errors import BadRequest, Elsewhere, TopicUnknown, Unavailable
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.unit.client.fake_transport import SECONDS_MAX, FakeTransport, ok

BATCH = pa.record_batch({"payload": [b"x", b"y"]})


def link_to(transport: FakeTransport, *, retry_ms_max: int = 60_000, window: int = 4) -> WriteLink:
    stream = WriteStream("t", producer="me")
    return WriteLink(transport, stream, SystemClock(), retry_ms_max=retry_ms_max, window=window)


def test_batches_are_numbered_and_answered() -> None:
    transport = FakeTransport(ok)
    link = link_to(transport)
    assert [link.send(BATCH).result(SECONDS_MAX).first_id for _ in range(3)] == [1000, 2000, 3000]
    assert [number for number, _, _ in transport.writes[0].sent] == [1, 2, 3]
    link.close()
    assert transport.writes[0].is_closed
    assert isinstance(link.send(BATCH).exception(SECONDS_MAX), Unavailable)


def test_what_was_not_answered_is_sent_again_under_its_number() -> None:
    transport = FakeTransport()
    link = link_to(transport)
    answers = [link.send(BATCH) for _ in range(3)]
    transport.writes[0].answer(1)
    transport.writes[0].break_off()
    again = transport.wait_writes(2)
    again.wait_for(2)
    assert again.stream.producer == "me"
    assert [number for number, _, _ in again.sent] == [1, 3]
    later = link.send(BATCH)
    again.wait_for(3)
    assert [number for number, _, _ in again.sent] == [1, 3, 4]
    for index in range(3):
        again.answer(index)
    firsts = [answer.result(SECONDS_MAX).first_id for answer in [*answers, later]]
    assert firsts == [100, 200, 300, 400]
    assert len(transport.writes) == 2


@pytest.mark.parametrize(("status", "known"), [(0, True), (1, False)])
def test_a_cancel_sent_again_is_only_sure_when_it_is_ok(status: int, known: bool) -> None:
    transport = FakeTransport()
    link = WriteLink(transport, WriteStream("t", "cancel"), SystemClock(), retry_ms_max=60_000)
    answer = link.send(BATCH)
    transport.writes[0].break_off()
    again = transport.wait_writes(2)
    again.wait_for(1)
    again.answer(0, statuses=np.array([0, status], dtype=np.uint8))
    error = answer.exception(SECONDS_MAX)
    assert error is None if known else isinstance(error, Unavailable)


def test_what_must_not_be_done_twice_is_not_sent_again() -> None:
    transport = FakeTransport()
    stream = WriteStream("t", "move")
    link = WriteLink(transport, stream, SystemClock(), retry_ms_max=60_000, repeats=False)
    answers = [link.send(BATCH) for _ in range(2)]
    transport.writes[0].answer(1)
    transport.writes[0].break_off()
    assert "carried out twice" in str(answers[0].exception(SECONDS_MAX))
    assert answers[1].exception(SECONDS_MAX) is None
    assert len(transport.writes) == 1
    link.close()


@pytest.mark.parametrize("repeats", [False, True])
def test_what_went_to_another_broker_s_topic_was_not_carried_out__it_goes_there(
    repeats: bool,
) -> None:
    transport = FakeTransport()
    stream = WriteStream("t", "move")
    link = WriteLink(transport, stream, SystemClock(), retry_ms_max=60_000, repeats=repeats)
    answer = link.send(BATCH)
    transport.writes[0].break_off(Elsewhere("it is served there"))
    again = transport.wait_writes(2)
    again.wait_for(1)
    again.answer(0, statuses=np.array([0, 1], dtype=np.uint8))
    assert answer.result(SECONDS_MAX).all_statuses().tolist() == [0, 1]
    link.close()


def test_a_broker_that_stops_is_left_for_another_connection() -> None:
    transport = FakeTransport()
    link = link_to(transport)
    answer = link.send(BATCH)
    transport.writes[0].answer(0, error=Unavailable("stopping"))
    again = transport.wait_writes(2)
    again.wait_for(1)
    again.answer(0)
    assert answer.result(SECONDS_MAX).first_id == 100


def test_a_refused_batch_does_not_end_the_stream() -> None:
    transport = FakeTransport()
    link = link_to(transport)
    bad, good = link.send(BATCH), link.send(BATCH)
    transport.writes[0].answer(0, error=BadRequest("due", "not negative", -1))
    transport.writes[0].answer(1)
    assert isinstance(bad.exception(SECONDS_MAX), BadRequest)
    assert good.result(SECONDS_MAX).first_id == 200
    assert len(transport.writes) == 1


def test_a_refused_stream_fails_what_was_sent_and_is_opened_anew() -> None:
    transport = FakeTransport()
    link = link_to(transport)
    answers = [link.send(BATCH) for _ in range(2)]
    transport.writes[0].break_off(TopicUnknown("t"))
    for answer in answers:
        assert isinstance(answer.exception(SECONDS_MAX), TopicUnknown)
    link.send(BATCH)
    transport.wait_writes(2).wait_for(1)


def test_a_topic_that_is_not_there() -> None:
    transport = FakeTransport()
    transport.refuses = TopicUnknown("t")
    answer = link_to(transport).send(BATCH)
    assert isinstance(answer.exception(SECONDS_MAX), TopicUnknown)


def test_time_is_up_at_last() -> None:
    transport = FakeTransport()
    transport.refuses = Unavailable("nobody there")
    answer = link_to(transport, retry_ms_max=50).send(BATCH)
    assert isinstance(answer.exception(SECONDS_MAX), Unavailable)


def test_the_window_holds_senders_back() -> None:
    transport = FakeTransport()
    link = link_to(transport, window=2)
    for _ in range(2):
        link.send(BATCH)
    third = threading.Thread(target=link.send, args=(BATCH,), daemon=True)
    third.start()
    assert not link.window.acquire(blocking=False)
    assert len(transport.writes[0].sent) == 2
    transport.writes[0].answer(0)
    third.join(SECONDS_MAX)
    transport.writes[0].wait_for(3)


def test_who_hears_of_a_failure_may_send_at_once() -> None:
    transport = FakeTransport()
    link = link_to(transport)
    heard = threading.Event()

    def again(_: object) -> None:
        link.send_in_window(BATCH)
        heard.set()

    transport.refuses = TopicUnknown("t")
    link.send_in_window(BATCH).add_done_callback(again)
    assert heard.wait(SECONDS_MAX)


def test_closing_waits_for_answers() -> None:
    transport = FakeTransport()
    link = link_to(transport)
    answer = link.send(BATCH)
    closer = threading.Thread(target=link.close, daemon=True)
    closer.start()
    assert closer.is_alive()
    transport.writes[0].answer(0)
    closer.join(SECONDS_MAX)
    assert answer.result(SECONDS_MAX) == Reply(1, 2, 100)


@pytest.mark.parametrize("failures", range(0, 200, 7))
def test_backoff_is_bounded(failures: int) -> None:
    assert 0 < backoff_ms(failures) <= BACKOFF_MS_MAX
