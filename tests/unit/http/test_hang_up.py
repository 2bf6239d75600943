"""Whether a peer has closed is known before an event loop has looked."""

from __future__ import annotations

import socket

from dejaqueue.http.hang_up import has_hung_up


def test_a_peer_that_is_there_has_not_hung_up__also_one_that_sends() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not has_hung_up(ours.fileno())
        theirs.sendall(b"GET")
        assert not has_hung_up(ours.fileno())


def test_who_closes_has_hung_up__also_behind_what_was_not_read() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(b"GET")
        theirs.close()
        assert has_hung_up(ours.fileno())


def test_who_sends_no_more_has_hung_up() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.shutdown(socket.SHUT_WR)
        assert has_hung_up(ours.fileno())


def test_a_connection_that_is_closed_here_has() -> None:
    assert has_hung_up(-1)
