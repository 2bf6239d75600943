"""The link to a client in another process: its frames, its errors, its end; calls: test_link.py."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from dejaqueue.celery.proxy import ProxyLink, error_of, read_frame, told, write_frame
from dejaqueue.errors import BadRequest, DejaQError, ResourceExhausted, TopicUnknown, Unavailable


def test_a_frame_arrives_as_it_was_sent() -> None:
    here, there = socket.socketpair()
    with here, there, there.makefile("rb") as stream:
        write_frame(here, (1, "arrivals", [(1, b"x" * 100_000, 1)]))
        assert read_frame(stream) == (1, "arrivals", [(1, b"x" * 100_000, 1)])
        here.close()
        with pytest.raises(EOFError):
            read_frame(stream)


@pytest.mark.parametrize(
    "error",
    [TopicUnknown("t"), BadRequest("due", "a time", 7), ResourceExhausted("full"), DejaQError("x")],
)
def test_an_error_arrives_with_its_class_and_text(error: DejaQError) -> None:
    again = error_of(*told(error))
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_calls_to_a_process_that_died_fail__and_so_do_its_consumers(url: str) -> None:
    link = ProxyLink(url, {})
    link.declare("proxy-death", {})
    came: list[object] = []
    link.consume("proxy-death", 1, came.append)
    os.kill(link._process.pid, signal.SIGKILL)
    link._process.wait()
    link._reader.join()
    with pytest.raises(Unavailable, match="has ended"):
        link.size("proxy-death")
    assert [type(error) for error in came] == [Unavailable]
    link.close()
