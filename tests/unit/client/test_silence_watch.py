"""Who has waited too long asks whether anybody is there; who says nothing is given up."""

from __future__ import annotations

from dejaqueue.client.silence_watch import (
    AGAIN_SECONDS_MAX,
    ANSWER_SECONDS_MAX,
    SILENT_SECONDS_MAX,
    SilenceWatch,
    WaitingConsumer,
)
from dejaqueue.errors import DejaQError, Forbidden, Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock


class Stream:
    """A stream that waits, or does not."""

    def __init__(self, since_us: int | None) -> None:
        self.since_us = since_us
        self.error: DejaQError | None = None

    def waits_since_us(self) -> int | None:
        return self.since_us

    def ended(self, error: DejaQError | None) -> None:
        self.error = error
        self.since_us = None


class Broker:
    """Says something, or nothing."""

    error: DejaQError | None = None
    asked = 0
    seconds = 0.0

    def ask(self, seconds: float) -> None:
        self.asked += 1
        self.seconds = seconds
        if self.error is not None:
            raise self.error


def test_a_broker_that_says_nothing_is_given_up__and_only_then() -> None:
    clock, broker = VirtualClock(), Broker()
    slow, idle, new = Stream(clock.now_us()), Stream(None), Stream(None)
    watch = SilenceWatch(lambda: [slow, idle, new], broker.ask, clock)
    assert watch.look()
    assert broker.asked == 0
    clock.advance(ms=int(SILENT_SECONDS_MAX * 1_000))
    new.since_us = clock.now_us()
    broker.error = None
    assert watch.look()
    assert (broker.asked, slow.error) == (1, None)  # slow, but there
    broker.error = Forbidden("not for you")
    watch.look()
    assert slow.error is None
    broker.error = Unavailable("deadline")
    watch.look()
    assert isinstance(slow.error, Unavailable)
    assert (idle.error, new.error) == (None, None)


def test_who_comes_to_a_broker_that_was_silent_asks_at_once__until_it_answers() -> None:
    clock, broker = VirtualClock(), Broker()
    streams = [Stream(clock.now_us())]
    watch = SilenceWatch(lambda: streams, broker.ask, clock)
    clock.advance(ms=int(SILENT_SECONDS_MAX * 1_000))
    broker.error = Unavailable("deadline")
    watch.look()
    assert (broker.asked, broker.seconds) == (1, ANSWER_SECONDS_MAX)
    assert not watch.look(), "nothing waits for it"
    assert broker.asked == 1
    streams.append(Stream(clock.now_us()))
    watch.look()
    assert isinstance(streams[1].error, Unavailable)
    assert (broker.asked, broker.seconds) == (2, AGAIN_SECONDS_MAX)
    broker.error = None
    streams.append(Stream(clock.now_us()))
    watch.look()
    assert (broker.asked, streams[2].error) == (3, None)
    watch.look()
    assert broker.asked == 3, "it is there, and has its time again"


def test_nobody_is_asked_while_nobody_waits() -> None:
    clock, broker = VirtualClock(), Broker()
    watch = SilenceWatch(lambda: [Stream(None)], broker.ask, clock)
    assert not watch.look()
    assert broker.asked == 0


def test_a_stream_that_was_answered_meanwhile_stays() -> None:
    clock, stream = VirtualClock(), Stream(0)

    def ask(seconds: float) -> None:
        stream.since_us = clock.now_us()
        raise Unavailable("deadline")

    SilenceWatch(lambda: [stream], ask, clock).look()
    assert stream.error is None


def test_closing_ends_its_thread() -> None:
    watch = SilenceWatch(list, Broker().ask, VirtualClock())
    watch.sent()
    watch.sent()
    watch.close()
    assert watch._thread is not None
    watch._thread.join(10)
    assert not watch._thread.is_alive()


class Channel:
    """A stream of deliveries that hears something now and then."""

    def __init__(self, heard_us: int) -> None:
        self.heard_us = heard_us
        self.end: DejaQError | None = None

    def break_off(self, error: DejaQError) -> None:
        self.end = error


def test_a_consumer_waits_all_the_time__and_whatever_it_hears_is_a_sign_of_life() -> None:
    clock, broker = VirtualClock(), Broker()
    channel = Channel(clock.now_us())
    broker.error = Unavailable("deadline")
    watch = SilenceWatch(lambda: [WaitingConsumer(channel)], broker.ask, clock, "the broker at a")
    clock.advance(ms=int(SILENT_SECONDS_MAX * 1_000))
    channel.heard_us = clock.now_us()
    assert watch.look()
    assert (broker.asked, channel.end) == (0, None)
    clock.advance(ms=int(SILENT_SECONDS_MAX * 1_000))
    watch.look()
    assert str(channel.end) == "the broker at a does not answer: deadline"
    assert isinstance(channel.end, Unavailable)
    assert channel.end.is_silent
    assert not watch.look(), "a stream that has ended waits for nothing"
