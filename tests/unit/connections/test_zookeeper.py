"""Covers: what a URL says, and how a session that reaches nobody ends.

Not covered: servers (tests/conformance/test_coordinator_zookeeper.py,
tests/integration/test_zookeeper_access.py).
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trustme

from dejaqueue.connections.zookeeper import PACKET_BYTES_MAX, ZooKeeperSession, parse_url
from dejaqueue.errors import BadRequest, Unavailable


def test_a_url_names_servers_a_namespace_and_a_user() -> None:
    plain = parse_url("zookeeper://one")
    assert (plain.hosts, plain.namespace, plain.user) == ("one:2181", "dejaq", "")
    assert plain.tls is None
    assert plain.packet_bytes_max == PACKET_BYTES_MAX
    full = parse_url("zookeeper://me:p%40ss@one:1,[::1]:2,[::2]/a/b?jute_maxbuffer=4194304")
    assert full.hosts == "one:1,[::1]:2,[::2]:2181"
    assert (full.namespace, full.user, full.password) == ("a/b", "me", "p@ss")
    assert full.packet_bytes_max == 4 << 20
    assert "p@ss" not in repr(full)


def test_files_of_tls_are_read_at_once(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(authority))
    assert parse_url(f"zookeeper://one?ca={authority}").tls is not None
    with pytest.raises(BadRequest, match="PEM files"):
        parse_url(f"zookeeper://one?ca={tmp_path}/none.pem")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("zookeeper:///a", "zookeeper://HOST:PORT"),
        ("zookeeper://one?chroot=a", "options ca, certificate, jute_maxbuffer, key, tls"),
        ("zookeeper://one?jute_maxbuffer=1k", "jute_maxbuffer: bytes"),
        ("zookeeper://one?jute_maxbuffer=9", "jute_maxbuffer: bytes"),
    ],
)
def test_what_is_no_url_of_ours_is_refused(url: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        parse_url(url)


def test_a_server_that_is_not_there_is_said_in_bounded_time() -> None:
    pytest.importorskip("kazoo")
    session = ZooKeeperSession(parse_url("zookeeper://127.0.0.1:1"), 2_000)
    began_s = time.monotonic()
    with pytest.raises(Unavailable, match="ZooKeeper does not answer: 127.0.0.1:1"):
        session.open()
    with pytest.raises(Unavailable, match="does not answer"):
        session.ask(lambda client: client.get_async("/a"))
    session.abandon()
    session.end()
    assert time.monotonic() - began_s < 60
