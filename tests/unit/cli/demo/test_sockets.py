"""Sockets that are open beyond loopback are found, those of loopback are not."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from dejaqueue.cli.demo.sockets import beyond_loopback, is_loopback

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="no /proc/net")


def listening(family: socket.AddressFamily, address: str) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.bind((address, 0))
    opened.listen()
    return opened


def test_what_listens_to_everybody_is_found() -> None:
    with listening(socket.AF_INET, "127.0.0.1") as inside:
        before = beyond_loopback(os.getpid())
        assert before is not None
        port = inside.getsockname()[1]
        assert not any(found.endswith(f":{port}") for found in before)
        with listening(socket.AF_INET, "0.0.0.0") as outside:
            found = beyond_loopback(os.getpid())
            assert found == sorted([*before, f"tcp 00000000:{outside.getsockname()[1]}"])


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("0100007F", True),
        ("0200007F", True),
        ("0101A8C0", False),
        ("0" * 32, False),
        ("00000000000000000000000001000000", True),
        ("0000000000000000FFFF00000100007F", True),
        ("0000000000000000FFFF00000101A8C0", False),
    ],
)
def test_addresses_as_the_system_writes_them(address: str, *, expected: bool) -> None:
    assert is_loopback(address) is expected
