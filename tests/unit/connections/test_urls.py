"""URLs whose login is not written as it must be: refused, and nothing of the login is shown."""

from __future__ import annotations

import pytest

from dejaqueue.connections.urls import check_login, warn_if_plain
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


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p@db.example/queue",
        "postgresql://u:p@db.example/queue?sslmode=prefer",
        "mysql://u:p@10.0.0.5:3306/queue",
        "redis://u:p@[2001:db8::1]:6379/0",
        "nats://u:p@localhost:4222,nats.example:4222",
        "cassandra://u:p@127.0.0.1.example.org/queue",
        "cassandra://u:p@db.example/queue?tls=false",
        "nats://nats.example:4222?system=u:p",
        "postgresql:///queue?host=db.example&user=u&password=u:p",
    ],
)
def test_a_password_in_plain_text_to_another_machine_is_warned_of(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_plain("journal.url", url)
    [said] = caplog.messages
    assert said.startswith("journal.url: the password for ")
    assert "u:p" not in said


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p@db.example/queue?sslmode=verify-full",
        "postgresql://u:p@localhost/queue",
        "postgresql://u:p@/queue?host=/run/postgresql",
        "postgresql://u@db.example/queue",
        "mysql://u:p@db.example/queue?ssl_ca=/ca.pem",
        "rediss://u:p@redis.example",
        "etcd://u:p@127.0.0.1:2379,[::1]:2379",
        "nats://u:p@nats.example?tls=true",
        "nats://nats.example?system=u:p&ca=ca.pem",
        "nats://127.0.0.1:4222?system=u:p",
        "cassandra://u:p@db.example/queue?tls=true",
        "cassandra://u:p@db.example/queue?ca=ca.pem",
        "postgresql:///queue?host=/run/postgresql&user=u&password=p",
        "/var/lib/dejaq",
        "memory:",
    ],
)
def test_no_warning_where_nobody_can_listen(url: str, caplog: pytest.LogCaptureFixture) -> None:
    warn_if_plain("journal.url", url)
    assert caplog.messages == []
