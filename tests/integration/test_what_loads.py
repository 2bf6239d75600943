"""Covers: what takes long to load, and few programs need, is not loaded by the others.

Not covered: how long a start takes (`python -m bench starting`), `dejaq --help`
(tests/unit/cli/test_main.py).
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from dejaqueue import client


@pytest.mark.parametrize(
    ("statement", "left_out"),
    [
        ("from dejaqueue import Client", ("http.client", "ssl", "asyncio")),
        ("from dejaqueue.client.credentials import Tls", ("dejaqueue.client._sync.client",)),
        ("import dejaqueue.http.app", ("jinja2", "dejaqueue.client._sync.client")),
    ],
)
def test_what_few_need_is_not_loaded(statement: str, left_out: tuple[str, ...]) -> None:
    code = f"import sys; {statement}; print(*(n for n in {left_out!r} if n in sys.modules))"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"


def test_each_public_name_of_the_client_is_there() -> None:
    for name in client.__all__:
        assert getattr(client, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing_such"):
        client.nothing_such  # noqa: B018
