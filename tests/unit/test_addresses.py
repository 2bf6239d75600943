"""Loopback is judged as an address, never by how a text begins."""

from __future__ import annotations

import pytest

from dejaqueue.addresses import is_loopback


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.255.0.9",
        "::1",
        "[::1]",
        "::1%lo",
        "::ffff:127.0.0.1",
        "localhost",
        "LocalHost",
    ],
)
def test_what_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1.example.org", "127.example", "127.", "127.1", "127.0.0.1:80", "0127.0.0.1"),
        *("0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "2130706433"),
        *("localhost.example.org", "a.localhost", "", " ", "[", "127.0.0.1\n", "127.0.0.1 "),
    ],
)  # fmt: skip
def test_what_others_may_reach(host: str) -> None:
    assert not is_loopback(host)
