"""Ports that are free, whatever the kernel says of those that go out."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from dejaqueue.cli import ports
from dejaqueue.cli.ports import free_port


def test_ports_are_free__and_below_those_of_connections_that_go_out() -> None:
    outgoing = int(ports.OUTGOING.read_text().split()[0])
    port = free_port(count=3)
    assert port + 3 <= outgoing
    with ExitStack() as taken:
        for place in range(3):
            taken.enter_context(socket.create_server(("127.0.0.1", port + place)))


def test_programs_that_are_seeded_alike_get_other_ports() -> None:
    found = []
    for _ in range(2):
        random.seed(1)
        found.append([free_port() for _ in range(3)])
    assert found[0] != found[1]


@pytest.mark.parametrize("said", ["", "1024 60999", "words"])
def test_where_the_kernel_leaves_no_room_or_does_not_say_a_port_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    (tmp_path / "range").write_text(said)
    monkeypatch.setattr(ports, "OUTGOING", tmp_path / "range")
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as opened:
        assert opened.getsockname()[1] == port


def test_a_host_of_another_machine_has_none() -> None:
    with pytest.raises(OSError, match="address"):
        free_port("192.0.2.1")
