"""Covers: what a process finds of its parent in its environment.

Not covered: that it ends with it, and has the address in its turn (tests/crash).
"""

from __future__ import annotations

import json
import os
import socket

import pytest

from dejaqueue.cli.parent import VARIABLE, Parent


def test_a_process_without_such_a_parent_shares_nothing() -> None:
    assert Parent.of_this_process() is None


def test_what_the_parent_told_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = os.dup(listening.fileno())
        told = {
            "settings": {"cluster.node": "process-1"},
            "names": ["process-1", "process-2"],
            "port": 7464,
            "http_socket": number,
        }
        monkeypatch.setenv(VARIABLE, json.dumps(told))
        parent = Parent.of_this_process()
        assert parent is not None
        assert parent.settings == {"cluster.node": "process-1"}
        assert parent.names == ("process-1", "process-2")
        assert parent.http_socket.getsockname() == listening.getsockname()
        assert not os.get_inheritable(number)
        assert Parent.of_this_process() is None
        parent.http_socket.close()
        parent.leave()
