"""Covers: which URL is which server, what a missing library says, that names have no secrets."""

from __future__ import annotations

import sys

import pytest

from dejaqueue.connections.sql_urls import server_of
from dejaqueue.errors import BadRequest


def test_urls_that_are_none_are_refused() -> None:
    urls = (
        "carrier-pigeon://loft", "sqlite:///", "sqlite://:memory:", "sqlite:///:memory:",
        "mysql://host", "mysql:///", "mysql://host/db?unknown=1", "postgresql://",
    )  # fmt: skip
    for url in urls:
        with pytest.raises(BadRequest):
            server_of(url)


@pytest.mark.parametrize(
    ("url", "library"),
    [("postgresql://h/d", "psycopg"), ("cockroachdb://h/d", "psycopg"), ("mysql://h/d", "pymysql")],
)
def test_a_missing_library_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, url: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    extra = "mysql" if library == "pymysql" else "postgresql"
    with pytest.raises(BadRequest, match=rf"pip install 'dejaqueue\[{extra}\]'"):
        server_of(url)


def test_names_have_no_secrets() -> None:
    urls = ("postgresql://me:hidden@h:1/d?sslpassword=hidden", "mysql://me:hidden@h:1/d")
    for url in urls:
        assert "hidden" not in server_of(url).name
        assert "h:1/d" in server_of(url).name
