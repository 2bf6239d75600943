"""Consumers that are open when a program ends. A program that really ends, with a broker:
tests/integration/test_left_open.py."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from dejaqueue.client.consuming import program_end
from dejaqueue.errors import Unavailable
from tests.patience import until


class Consumer:
    """One that may hang as it is closed, or fail."""

    def __init__(
        self, hangs: threading.Event | None = None, wrong: Exception | None = None
    ) -> None:
        self.is_over = False
        self.closed = 0
        self._hangs, self._wrong = hangs, wrong
        program_end.close_at_exit(self)

    def close(self) -> None:
        self.closed += 1
        if self._hangs is not None:
            self._hangs.wait()
        if self._wrong is not None:
            raise self._wrong


def test_those_that_are_open_are_closed() -> None:
    consumers = [Consumer(), Consumer(wrong=Unavailable("gone")), Consumer()]
    consumers[2].is_over = True
    program_end.close_all()
    assert [consumer.closed for consumer in consumers] == [1, 1, 0]


def test_one_that_hangs_holds_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_end, "EXIT_SECONDS_MAX", 0.05)
    goes_on = threading.Event()
    hanging, other = Consumer(goes_on), Consumer()
    program_end.close_all()
    assert (hanging.closed, other.closed) == (1, 1)
    goes_on.set()


def test_one_that_nobody_holds_any_more_is_waited_for_while_it_is_closed() -> None:
    class Slow:
        is_over = was_closed = False

        def close(self) -> None:
            self.is_over = True  # as a consumer's, before the broker was told
            goes_on.wait()
            self.was_closed = True

    goes_on, slow = threading.Event(), Slow()
    program_end.close_soon(slow)
    threading.Timer(0.1, goes_on.set).start()
    program_end.close_all()
    assert slow.was_closed
    until(lambda: not program_end._CLOSERS)


def test_one_that_is_gone_is_not_kept() -> None:
    before = len(program_end._CONSUMERS)
    Consumer()
    gc.collect()
    assert len(program_end._CONSUMERS) <= before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_none() -> None:
    consumer = Consumer()
    child = os.fork()
    if not child:
        os._exit(len(program_end._CONSUMERS))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert consumer in program_end._CONSUMERS
