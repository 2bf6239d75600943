import pytest

from dejaqueue.cli.ports import free_port
from dejaqueue.connections.cassandra import CassandraSession, CassandraUrl, read_url
from dejaqueue.errors import BadRequest, Unavailable


def test_a_url_says_everything() -> None:
    assert read_url("cassandra://me:p%40ss@a:1,b:1/Space_1?replicas=3") == CassandraUrl(
        ("a", "b"), 1, "me", "p@ss", "space_1", 3
    )
    assert read_url("cassandra://host") == CassandraUrl(("host",), 9042, "", "", "dejaq", 1)
    assert "p@ss" not in repr(read_url("cassandra://me:p%40ss@a"))


def test_tls_is_asked_for_by_the_same_parameters_as_elsewhere() -> None:
    for url in ("cassandra://host", "cassandra://host?tls=false"):
        assert read_url(url).tls is None
    context = read_url("cassandra://host?tls=true").tls
    assert context is not None
    # What the driver asks before it hands the address to the handshake.
    assert context.check_hostname


@pytest.mark.parametrize(
    "url",
    [
        "redis://a",
        "cassandra://",
        "cassandra://a:1,b:2",
        "cassandra://a:port",
        "cassandra://a/1x",
        "cassandra://a/a-b",
        "cassandra://a?replicas=0",
        "cassandra://a?copies=1",
        "cassandra://a?tls=maybe",
        "cassandra://a?tls=false&ca=ca.pem",
        "cassandra://a?ca=/there/is/none.pem",
        "cassandra://a?key=ours.key",
    ],
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(BadRequest):
        read_url(url)


def test_a_refusal_does_not_show_the_password() -> None:
    with pytest.raises(BadRequest) as raised:
        read_url("cassandra://me:secret@a:1,b:2")
    assert "secret" not in str(raised.value)


def test_nobody_there_is_unavailable() -> None:
    pytest.importorskip("cassandra")
    with pytest.raises(Unavailable):
        CassandraSession(f"cassandra://127.0.0.1:{free_port()}")
