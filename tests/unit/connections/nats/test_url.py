import pytest

from dejaqueue.connections.nats.url import NatsUrl, read_url
from dejaqueue.errors import BadRequest


def test_a_url_says_everything() -> None:
    url = read_url(
        "nats://me:p%40ss@a:1,b,[::1]:3?replicas=3&prefix=one&monitor=a:8,b&system=sys:word"
    )
    assert url == NatsUrl(
        ("a:1", "b:4222", "[::1]:3"), "me", "p@ss", 3, "one", ("a:8", "b:8222"), "sys", "word"
    )


def test_monitoring_with_tls_is_said_by_https() -> None:
    url = read_url("nats://a?monitor=https://a,b:1,https://[::1]:2")
    assert url.monitors == ("https://a:8222", "b:1", "https://[::1]:2")


def test_what_is_not_said_is_the_default() -> None:
    assert read_url("nats://host") == NatsUrl(("host:4222",))


def test_a_secret_is_not_shown() -> None:
    url = read_url("nats://me:secret@a:1?system=s:hidden")
    assert "secret" not in f"{url} {url!r}"
    assert "hidden" not in f"{url} {url!r}"


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("redis://a", "url"),
        ("nats://", "url"),
        ("nats://a/path", "url"),
        ("nats://a?copies=3", "url"),
        ("nats://a:port", "url"),
        ("nats://a?replicas=2", "replicas"),
        ("nats://a?prefix=a.b", "prefix"),
        ("nats://a?monitor=a:x", "monitor"),
        ("nats://a?monitor=ftp://a:1", "monitor"),
    ],
)
def test_a_wrong_url_is_refused_by_field(url: str, field: str) -> None:
    with pytest.raises(BadRequest) as raised:
        read_url(url)
    assert raised.value.field == field


def test_a_refusal_does_not_show_the_password() -> None:
    with pytest.raises(BadRequest) as raised:
        read_url("nats://me:secret@a/path")
    assert "secret" not in str(raised.value)
