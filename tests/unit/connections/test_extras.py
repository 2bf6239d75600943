"""Libraries of extras: found, or named with the way to get them, and without secrets."""

from __future__ import annotations

import json
import sys

import pytest

from dejaqueue.connections.extras import load
from dejaqueue.errors import BadRequest


def test_a_library_that_is_there_is_imported() -> None:
    assert load("json", "postgresql", "postgresql://h/d") is json


def test_a_missing_library_says_how_to_install_it__and_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(BadRequest) as caught:
        load("psycopg", "postgresql", "postgresql://me:hidden@h/d")
    assert "pip install 'dejaqueue[postgresql]'" in str(caught.value)
    assert str(caught.value).startswith("postgresql url")
    assert "hidden" not in str(caught.value)


def test_what_a_library_itself_lacks_is_named() -> None:
    with pytest.raises(BadRequest, match="needs the Python package absent_library:"):
        load("absent_library.part", "nats", "nats://h")
