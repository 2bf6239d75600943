"""Cassandra over TLS: every promise of a record store, and who is let in and believed.

Covers: the records' contract on one real node that wants clients' certificates. Not covered:
several nodes; appends in plain text under kills, which is `make crash BACKEND=cassandra`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from dejaqueue.clock import SystemClock
from dejaqueue.errors import Fenced, Unavailable
from dejaqueue.journal.records.cassandra import CassandraRecordStore
from dejaqueue.testing.record_conformance import RecordConformance
from dev.services import Service, missing, start
from tests.integration.papers import Papers

# Where Maven's repository cannot be reached there is no Cassandra.
pytestmark = pytest.mark.may_skip

HOUR_US = 3_600_000_000


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


def encryption(papers: Papers) -> str:
    """The node's setting: TLS for who asks for it, and then only with a certificate of ours."""
    chain, key = papers.broker
    # Java reads private keys in this form only.
    own = load_pem_private_key(Path(key).read_bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    store = papers.place / "node.pem"
    store.write_bytes(own + Path(chain).read_bytes())
    factory = "{class_name: org.apache.cassandra.security.PEMBasedSslContextFactory}"
    return (
        "{enabled: true, optional: true, require_client_auth: true, "
        f"keystore: {store}, truststore: {papers.ca}, ssl_context_factory: {factory}}}"
    )


@pytest.fixture(scope="module")
def cassandra(papers: Papers) -> Iterator[Service]:
    pytest.importorskip("cassandra")
    if lacking := missing("cassandra"):
        pytest.skip(f"not installed: {lacking}")
    with start("cassandra", client_encryption_options=encryption(papers)) as service:
        yield service


class TestCassandra(RecordConformance):
    service: Service
    papers: Papers

    @pytest.fixture(autouse=True)
    def _use(self, cassandra: Service, papers: Papers) -> None:
        self.service, self.papers = cassandra, papers

    def url(self, address: tuple[str, int] | None = None, **parameters: str) -> str:
        host, port = address or self.server_address()
        return f"cassandra://{host}:{port}/dejaq?{urlencode(parameters)}"

    def make_store(self, address: tuple[str, int] | None = None) -> CassandraRecordStore:
        certificate, key = self.papers.client
        url = self.url(address, ca=self.papers.ca, certificate=certificate, key=key)
        return CassandraRecordStore(url)

    def server_address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.service.port)

    kills = False

    def restart_server(self) -> None:
        """It takes its time to start, so only one test waits for it."""
        if self.kills:
            self.service.kill()
            self.service.start()

    # tidy: allow no-assert, because the suite's own test asserts
    def test_what_was_acknowledged_outlives_a_killed_server(self) -> None:
        self.kills = True
        super().test_what_was_acknowledged_outlives_a_killed_server()

    def test_who_has_not_the_right_papers_is_told_nothing(self) -> None:
        papers = self.papers
        ours = {"certificate": papers.client[0], "key": papers.client[1]}
        strangers = {"certificate": papers.stranger[0], "key": papers.stranger[1]}
        combinations: list[dict[str, Any]] = [
            {"ca": papers.ca},
            {"ca": papers.other_ca} | ours,
            {"ca": papers.ca} | strangers,
            ours,
        ]
        for wrong in combinations:
            with pytest.raises(Unavailable):
                CassandraRecordStore(self.url(**wrong)).close()

    def test_plain_text_is_what_no_parameter_asks_for(self) -> None:
        written, read = CassandraRecordStore(self.url()), self.make_store()
        try:
            written.put_object("plain", b"1")
            assert read.get_object("plain") == b"1"
        finally:
            written.close()
            read.close()

    # A client stamps what it writes without a condition with its own clock; what is written with
    # one is stamped by the servers. A clock that is ahead must not hide what comes later.

    @pytest.fixture
    def right(self) -> Iterator[CassandraRecordStore]:
        store = self.make_store()
        yield store
        store.close()

    @pytest.fixture
    def wrong(self) -> Iterator[CassandraRecordStore]:
        store = self.make_store()
        yield store
        store.close()

    @pytest.mark.parametrize("offset_us", [-HOUR_US, HOUR_US])
    def test_a_dropped_topic_is_gone_and_the_next_of_its_name_is_kept__whatever_the_clock(
        self, offset_us: int, right: CassandraRecordStore, wrong: CassandraRecordStore
    ) -> None:
        cluster = wrong._session._cluster
        cluster.timestamp_generator = lambda: SystemClock().now_us() + offset_us
        topic = f"dropped{offset_us}"
        old = right.open(topic, 0)
        old.append(0, [[b"%d" % number] for number in range(1, 9)])
        wrong.open(topic, 0).drop_before(4)
        assert [number for number, _ in old.read(1, 9)] == [4, 5, 6, 7, 8]
        wrong.drop(topic)
        with pytest.raises(Fenced):
            old.append(8, [[b"9"]])
        new = right.open(topic, 0)
        assert new.last() == 0
        assert list(new.read(1, 9)) == []
        new.append(0, [[b"new %d" % number] for number in range(1, 7)])
        assert new.last() == 6
        assert [content for _, content in new.read(1, 9)] == [b"new %d" % n for n in range(1, 7)]
        right.drop(topic)  # it is known that there is something to drop
        assert right.open(topic, 0).last() == 0

    def test_an_owner_that_appends_while_its_topic_is_dropped_leaves_nothing_behind(
        self, right: CassandraRecordStore, wrong: CassandraRecordStore
    ) -> None:
        log = right.open("racing", 0)
        log.append(0, [[b"1"], [b"2"]])
        run, races = wrong._session.run, [3]

        def racing(
            statement: str, values: Sequence[object] = (), *, serial: bool = False
        ) -> object:
            if statement.startswith("DELETE") and ".log" in statement and races:
                log.append(races.pop() - 1, [[b"3"]])
            return run(statement, values, serial=serial)

        wrong._session.run = racing  # type: ignore[method-assign]
        wrong.drop("racing")
        new = right.open("racing", 0)
        assert new.last() == 0
        assert list(new.read(1, 9)) == []
