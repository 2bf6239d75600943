"""Contexts whose files change. Handshakes with real servers: tests/integration/test_rotation.py."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from dejaqueue.connections.tls import LiveContext, client_context
from dejaqueue.errors import BadRequest


def shake(client: ssl.SSLContext, server: ssl.SSLContext) -> bool:
    """A handshake in memory; True if the client believes the server."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    far = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for _ in range(4):
            for side in (near, far):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLCertVerificationError:
        return False
    return near.version() is not None


def server_of(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


def test_a_changed_authority_is_believed_and_the_old_one_no_more(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    ca = tmp_path / "ca.pem"
    ca.write_bytes(old.cert_pem.bytes())
    context = client_context({"ca": str(ca)}, "url")
    assert context is not None
    assert (shake(context, server_of(old)), shake(context, server_of(new))) == (True, False)
    ca.write_bytes(new.cert_pem.bytes())
    assert (shake(context, server_of(old)), shake(context, server_of(new))) == (False, True)


def test_wrong_files_leave_the_old_ones_in_use(tmp_path: Path) -> None:
    old = trustme.CA()
    ca = tmp_path / "ca.pem"
    ca.write_bytes(old.cert_pem.bytes())
    context = client_context({"ca": str(ca)}, "url")
    assert context is not None
    for content in (b"no PEM", None):
        if content is None:
            ca.unlink()
        else:
            ca.write_bytes(content)
        assert shake(context, server_of(old))


def test_files_that_change_while_they_are_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"1")
    is_moving = False

    def build() -> ssl.SSLContext:
        if is_moving:
            file.write_bytes(b"3")
        return ssl.create_default_context()

    context = LiveContext(build, [str(file)])
    assert not context.refresh()
    file.write_bytes(b"2")
    is_moving = True
    with pytest.raises(BadRequest, match="do not change while they are read"):
        context.refresh()
    assert context.seen == [b"1"]
    is_moving = False
    assert context.refresh()
    assert context.seen == [b"3"]


def test_protocols_are_kept_for_contexts_that_come_later(tmp_path: Path) -> None:
    file, offered = tmp_path / "file", []
    file.write_bytes(b"1")

    class Noting(ssl.SSLContext):
        def set_alpn_protocols(self, alpn_protocols: object) -> None:
            offered.append(alpn_protocols)

    context = LiveContext(lambda: Noting(ssl.PROTOCOL_TLS_CLIENT), [str(file)])
    context.set_alpn_protocols(["http/1.1"])
    file.write_bytes(b"2")
    context.refresh()
    assert offered == [["http/1.1"], ["http/1.1"]]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tls": "perhaps"}, "tls: true or false, got: 'perhaps'"),
        ({"tls": "false", "ca": "a"}, "tls: true, with ca, certificate or key, got: 'false'"),
        ({"key": "a"}, "certificate: a file, with key, got: 'none'"),
        ({"ca": "/nowhere"}, "url: ca, certificate, key: PEM files"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        client_context(options, "url")
    assert str(caught.value).startswith(text)


def test_without_options_it_is_plain_text() -> None:
    assert client_context({}, "url") is None
    assert client_context({"tls": "false"}, "url") is None
    assert client_context({"tls": "true"}, "url") is not None
