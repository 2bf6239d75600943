"""ZooKeeper with users, TLS and limits of its own, and with members that are gone: real servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from dejaqueue.cli.ports import free_port
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import BadRequest, Refused, Unavailable
from dev.services import missing
from dev.services.zookeeper import ZooKeeper
from tests.patience import PATIENCE_SECONDS, until


@pytest.fixture(autouse=True)
def _needs_zookeeper() -> None:
    if lacking := missing("zookeeper"):
        pytest.skip(lacking)


def _answers(url: str) -> bool:
    try:
        open_coordinator(url).close()
    except Unavailable:
        return False
    return True


def test_users_tls_and_a_session_that_may_not_last(tmp_path: Path) -> None:
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("broker")
    paths = {name: str(tmp_path / f"{name}.pem") for name in ("ca", "server", "client")}
    authority.cert_pem.write_to_path(paths["ca"])
    key = load_pem_private_key(server.private_key_pem.bytes(), None)
    # Java's ZooKeeper reads keys in this format alone.
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    Path(paths["server"]).write_bytes(plain + server.cert_chain_pems[0].bytes())
    client.private_key_and_cert_chain_pem.write_to_path(paths["client"])
    secure_port = free_port()
    service = ZooKeeper(
        tickTime="2000",
        secureClientPort=str(secure_port),
        secureClientPortAddress="127.0.0.1",
        serverCnxnFactory="org.apache.zookeeper.server.NettyServerCnxnFactory",
        **{"ssl.keyStore.location": paths["server"], "ssl.trustStore.location": paths["ca"]},
    )
    with service.start():
        # A user: what it made is its own.
        place = f"127.0.0.1:{service.port}"
        coordinator = open_coordinator(f"zookeeper://broker:other@{place}/one")
        assert coordinator.put("a", b"1", 0, ttl_ms=2_000) > 0
        assert coordinator.renew("a")
        assert coordinator.summary.startswith("ZooKeeper 3.")
        # 20 ticks of two seconds are the most that a session may last.
        with pytest.raises(BadRequest, match="at most 39000 by maxSessionTimeout here"):
            coordinator.put("b", b"1", ttl_ms=120_000)
        assert coordinator.get("b") is None
        with pytest.raises(BadRequest, match="jute_maxbuffer"):
            coordinator.put("b", bytes(1 << 20))
        coordinator.close()
        for wrong in ("", "broker:wrong@"):
            with pytest.raises(Refused, match="refuses this user") as refusal:
                open_coordinator(f"zookeeper://{wrong}{place}/one")
            assert "wrong" not in str(refusal.value)
        # TLS, with certificates on both sides.
        secure = f"zookeeper://127.0.0.1:{secure_port}/two"
        good = f"{secure}?ca={paths['ca']}&certificate={paths['client']}"
        until(lambda: _answers(good), "it speaks TLS")
        with_tls = open_coordinator(good)
        rung = threading.Event()
        with_tls.watch("", rung.set)
        assert rung.wait(PATIENCE_SECONDS)
        assert with_tls.put("a", b"1") > 0
        with_tls.close()
        for wrong in (f"{secure}?ca={paths['ca']}", f"{secure}?tls=true"):
            with pytest.raises(Unavailable):
                open_coordinator(wrong)


@pytest.fixture
def three() -> Iterator[list[ZooKeeper]]:
    """Three members of one ensemble."""
    limits = {"initLimit": "20", "syncLimit": "4", "maxSessionTimeout": "60000"}
    members = [ZooKeeper(tickTime="500", **limits) for _ in range(3)]
    for number, member in enumerate(members, 1):
        (member.folder / "content").mkdir()
        (member.folder / "content" / "myid").write_text(str(number))
        member.settings["standaloneEnabled"] = "false"
    servers = {
        f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()};{member.port}"
        for number, member in enumerate(members, 1)
    }
    with ExitStack() as stack:
        for member in members:
            member.settings |= servers | {"clientPort": "", "clientPortAddress": ""}
            stack.callback(member.stop)
        starts = [threading.Thread(target=member.start) for member in members]
        for one_start in starts:
            one_start.start()
        for one_start in starts:
            one_start.join(PATIENCE_SECONDS)
        yield members


def test_members_may_die_one_by_one_and_none_is_missed(three: list[ZooKeeper]) -> None:
    places = ",".join(f"127.0.0.1:{member.port}" for member in three)
    # The first place is nobody's.
    url = f"zookeeper://127.0.0.1:{free_port()},{places}"
    one, other = open_coordinator(url), open_coordinator(url)
    rung = threading.Event()
    other.watch("", rung.set)
    assert rung.wait(PATIENCE_SECONDS)
    assert one.put("member", b"", ttl_ms=20_000) > 0
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

        def is_seen(number: int = number) -> bool:
            try:
                found = other.get("a")
            except Unavailable:  # the other one has still to find who leads now
                return False
            return found is not None and found.value == b"%d" % number

        until(is_seen, "the other one sees it")

        def is_kept() -> bool:
            try:
                return one.renew("member")
            except Unavailable:
                return False

        until(is_kept, "the session went on at another member")
        member.start()
    for coordinator in (one, other):
        coordinator.close()
