"""URLs whose login is not written as it must be: refused, and nothing of the login is shown."""

from __future__ import annotations

import pytest

from dejaqueue.connections.urls import check_login
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import BadRequest
from dejaqueue.journal.registry import open_store

JOURNALS = ("postgresql", "cockroachdb", "mysql", "redis", "nats", "cassandra")
COORDINATORS = ("etcd", "postgresql", "mysql", "redis", "nats")


@pytest.mark.parametrize("password", ["s3/cr3t", "s3?cr3t", "s3#cr3t", "@s3/cr3t@x", "[s3cr3t/"])
def test_a_password_that_ends_the_login_is_refused_before_anything_is_taken_from_it(
    password: str,
) -> None:
    for scheme in JOURNALS:
        with pytest.raises(BadRequest) as refused:
            open_store(f"{scheme}://me:{password}@host:1/db")
        assert "cr3t" not in str(refused.value)
    for scheme in COORDINATORS:
        with pytest.raises(BadRequest) as refused:
            open_coordinator(f"{scheme}://me:{password}@host:1/db")
        assert "cr3t" not in str(refused.value)
    with pytest.raises(BadRequest) as refused:
        open_coordinator(f"unknown://me:{password}@host:1/db")
    assert "cr3t" not in str(refused.value)


def test_the_text_says_how_to_write_it() -> None:
    with pytest.raises(BadRequest) as refused:
        check_login("journal", "nats://me:s3/cr3t@host:4222")
    assert str(refused.value) == (
        "journal: a login with / ? # and @ written as %2F %3F %23 and %40, "
        "got: 'nats://me:***@host:4222'"
    )


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:p@host:1/db", "nats://me:a%2Fb@h1:1,h2:2", "nats://h1:1,h2:2?system=U:p@x",
        "postgresql:///db?host=/run&user=a@b", "sqlite:///path/with@sign", "etcd://[::1]:2379",
        "redis://host?prefix=a", "mysql://me:a@b@host/db", "etcd://host/name",
    ],
)  # fmt: skip
def test_other_urls_are_left_to_their_servers(url: str) -> None:
    check_login("journal", url)
