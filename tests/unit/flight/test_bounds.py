"""Streams are counted, and those beyond the bound refused."""

from __future__ import annotations

import pytest

from dejaqueue.errors import ResourceExhausted
from dejaqueue.flight.bounds import OpenStreams


def test_a_stream_beyond_the_bound_is_refused_until_another_ends() -> None:
    streams = OpenStreams(2)
    with streams.opened():
        with streams.opened():
            with pytest.raises(ResourceExhausted, match="2 streams"), streams.opened():
                pass
            assert streams.count == 2
        with streams.opened():
            assert streams.count == 2
    assert streams.count == 0


def test_a_stream_is_idle_while_it_owes_nothing() -> None:
    streams = OpenStreams(2)
    with streams.opened() as first, streams.opened():
        assert streams.idle_count() == 2
        first.owes = lambda: True
        assert streams.idle_count() == 1
    assert streams.idle_count() == 0


def test_a_stream_that_fails_has_ended() -> None:
    streams = OpenStreams(1)
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"), streams.opened():
            raise ValueError("broken")
    assert streams.count == 0
