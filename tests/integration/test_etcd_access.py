"""etcd with users and TLS, and with members that are gone: real servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

from dejaqueue.cli.ports import free_port
from dejaqueue.connections.etcd import EtcdGateway, parse_url
from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import DejaQError, Refused, Unavailable
from dev.services import missing, start
from dev.services.etcd import Etcd
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(autouse=True)
def _needs_etcd() -> None:
    if lacking := missing("etcd"):
        pytest.skip(lacking)


def test_a_user_with_a_password(tmp_path: Path) -> None:
    with start("etcd") as service:
        gateway = EtcdGateway(parse_url(service.url))
        everything = {"permType": "READWRITE", "key": "AA==", "range_end": "AA=="}
        for path, body in (
            ("user/add", {"name": "root", "password": "secret"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": "broker", "password": "other"}),
            ("role/add", {"name": "facts"}),
            ("role/grant", {"name": "facts", "perm": everything}),
            ("user/grant", {"user": "broker", "role": "facts"}),
            ("user/add", {"name": "nobody", "password": "none"}),
            ("enable", {}),
        ):
            gateway.call(f"/v3/auth/{path}", body)
        gateway.close()
        place = f"127.0.0.1:{service.port}"
        coordinator = open_coordinator(f"etcd://broker:other@{place}")
        rung = threading.Event()
        coordinator.watch("", rung.set)
        assert rung.wait(PATIENCE_SECONDS)
        rung.clear()
        assert coordinator.put("a", b"1", 0, ttl_ms=2_000) > 0
        assert coordinator.renew("a")
        assert rung.wait(PATIENCE_SECONDS)
        coordinator.close()
        for wrong in ("", "broker:wrong@", "nobody:none@"):
            with pytest.raises(DejaQError) as refusal:
                open_coordinator(f"etcd://{wrong}{place}")
            assert not isinstance(refusal.value, Unavailable)
        with pytest.raises(Refused, match="nobody|permission"):
            open_coordinator(f"etcd://nobody:none@{place}")


def _opened(url: str) -> Coordinator:
    """As soon as the server speaks TLS; it takes connections before that."""
    for _ in range(60):
        try:
            return open_coordinator(url)
        except Unavailable:
            threading.Event().wait(0.5)
    return open_coordinator(url)


def test_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("broker")
    paths = {name: tmp_path / f"{name}.pem" for name in ("ca", "server", "key", "client")}
    authority.cert_pem.write_to_path(paths["ca"])
    server.cert_chain_pems[0].write_to_path(paths["server"])
    server.private_key_pem.write_to_path(paths["key"])
    client.private_key_and_cert_chain_pem.write_to_path(paths["client"])
    settings = {
        "cert-file": str(paths["server"]),
        "key-file": str(paths["key"]),
        "trusted-ca-file": str(paths["ca"]),
        "client-cert-auth": "true",
    }
    with start("etcd", **settings) as service:
        place = f"etcd://127.0.0.1:{service.port}"
        good = _opened(f"{place}?ca={paths['ca']}&certificate={paths['client']}")
        rung = threading.Event()
        good.watch("", rung.set)
        good.put("a", b"1")
        assert rung.wait(PATIENCE_SECONDS)
        good.close()
        for wrong in (f"{place}?ca={paths['ca']}", f"{place}?tls=true", place):
            with pytest.raises(Unavailable):
                open_coordinator(wrong)


@pytest.fixture
def three() -> Iterator[list[Etcd]]:
    """Three members of one cluster."""
    members = [Etcd() for _ in range(3)]
    peers = ",".join(
        f"member-{n}=http://127.0.0.1:{member.peer_port}" for n, member in enumerate(members)
    )
    with ExitStack() as stack:
        for n, member in enumerate(members):
            member.settings = {
                "name": f"member-{n}",
                "initial-cluster": peers,
                # An election within a second, as this machine allows.
                "heartbeat-interval": "50",
                "election-timeout": "500",
            }
            stack.callback(member.stop)
        starts = [threading.Thread(target=member.start) for member in members]
        for one in starts:
            one.start()
        for one in starts:
            one.join(PATIENCE_SECONDS)
        yield members


def test_members_may_die_one_by_one_and_none_is_missed(three: list[Etcd]) -> None:
    places = ",".join(f"127.0.0.1:{member.port}" for member in three)
    # The first endpoint is nobody's.
    url = f"etcd://127.0.0.1:{free_port()},{places}"
    one, other = open_coordinator(url), open_coordinator(url)
    rung = threading.Event()
    other.watch("", rung.set)
    assert rung.wait(PATIENCE_SECONDS)
    number = 0
    for member in three:
        member.kill()
        rung.clear()
        done = False
        while not done:
            number += 1
            try:
                one.put("a", b"%d" % number)
                done = True
            except Unavailable:  # it may have been done; the next number is another one
                pass
        assert rung.wait(PATIENCE_SECONDS)
        found = other.get("a")
        assert found is not None
        assert found.value == b"%d" % number
        member.start()
    for coordinator in (one, other):
        coordinator.close()
