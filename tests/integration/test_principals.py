"""Who calls by a certificate, who only looks, and what a grant denies: over both ports.

Every call as every role is in test_authorisation.py.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow.flight as flight
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.client import Client, Tls
from dejaqueue.errors import Forbidden, Unauthenticated
from tests.integration.access_fixture import Site, running
from tests.integration.papers import HOST, Papers, server_tls
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture
def mutual(papers: Papers) -> Iterator[Site]:
    with running(server_tls(papers.broker, papers.ca)) as site:
        site.keys["root"] = site.broker.keys.create("root", ["admin:*"])[1]
        yield site


def calls(site: Site, papers: Papers, pair: tuple[str, str], key: str | None = None) -> list[str]:
    """What comes of a send and of a look, over Flight and over HTTP."""
    found = []
    tls = Tls(papers.ca, *pair)
    url = f"dejaqs://{HOST}:{site.flight.port}"
    with Client(url, tls=tls, api_key=key, retry_ms_max=0) as client:
        for call in (lambda: client.send("t", b"x"), lambda: client.peek("t")):
            try:
                call()
            except (Unauthenticated, Forbidden) as refused:
                found.append(type(refused).__name__)
            else:
                found.append("done")
    context = ssl.create_default_context(cafile=papers.ca)
    context.load_cert_chain(*pair)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    with httpx.Client(verify=context, headers=headers, timeout=PATIENCE_SECONDS) as web:
        base = f"https://{HOST}:{site.http.port}"
        answers = [web.post(f"{base}/v1/topics/t/messages", json={"payload": "x"})]
        answers.append(web.get(f"{base}/v1/stats"))
    names = {201: "done", 200: "done", 401: "Unauthenticated", 403: "Forbidden"}
    return found + [names[answer.status_code] for answer in answers]


YES, NO, WHO = "done", "Forbidden", "Unauthenticated"


def test_a_certificate_has_the_roles_of_its_name(mutual: Site, papers: Papers) -> None:
    keys = mutual.broker.keys
    shop = papers.issue("shop", "shop.example", common_name="Shop")
    plain = papers.issue("plain", common_name="till-7")
    with Client(
        f"dejaqs://{HOST}:{mutual.flight.port}",
        tls=Tls(papers.ca, *shop),
        api_key=mutual.keys["root"],
    ) as root:
        root.create_topic("t")
        assert calls(mutual, papers, shop) == [WHO] * 4, "no role was given to it yet"
        made = root.create_key("cert:shop.example", ["produce:t"])
        assert "api_key" not in made, "there is nothing to lose"
        root.create_key("cert:till-7", ["observe:*"])
        root.create_key("cert:Shop", ["admin:*"])
    assert calls(mutual, papers, shop) == [YES, NO, YES, NO], "the alternative name, not the common"
    assert calls(mutual, papers, plain) == [NO, YES, NO, YES]
    assert calls(mutual, papers, shop, mutual.keys["root"]) == [YES] * 4, "a key goes before"
    assert calls(mutual, papers, shop, "dq_0_0") == [WHO] * 4, "a wrong key is not made good"
    stranger = papers.issue("stranger-2", "other.example", common_name="till-7")
    assert calls(mutual, papers, stranger) == [WHO] * 4
    keys.revoke("cert:shop.example")
    assert calls(mutual, papers, shop) == [WHO] * 4


def test_a_name_without_mutual_tls_is_nobody(papers: Papers) -> None:
    """A broker that asks for no certificates believes none."""
    with running(server_tls(papers.broker)) as site:
        site.broker.keys.create("root", ["admin:*"])
        site.broker.keys.create("cert:shop@queue.example", ["admin:*"])
        assert calls(site, papers, papers.client) == [WHO] * 4


def test_an_open_stream_ends_when_its_certificate_is_revoked(mutual: Site, papers: Papers) -> None:
    mutual.broker.keys.create("cert:shop@queue.example", ["consume:t", "produce:t", "manage:t"])
    tls = Tls(papers.ca, *papers.client)
    with Client(f"dejaqs://{HOST}:{mutual.flight.port}", tls=tls) as client:
        client.create_topic("t")
        client.send("t", b"x")
        taken = iter(client.consume("t", idle_ms=60_000))
        assert next(taken).payload == b"x"
        mutual.broker.keys.revoke("cert:shop@queue.example")
        with pytest.raises(Unauthenticated):
            next(taken)


def test_what_another_broker_passes_on_is_not_the_brokers_own(mutual: Site, papers: Papers) -> None:
    mutual.broker.keys.create("cert:shop@queue.example", ["admin:*"])
    pair = papers.client
    bare = flight.FlightClient(
        f"grpc+tls://{HOST}:{mutual.flight.port}",
        tls_root_certs=Path(papers.ca).read_bytes(),
        cert_chain=Path(pair[0]).read_bytes(),
        private_key=Path(pair[1]).read_bytes(),
    )
    action = flight.Action("list_topics", b"{}")
    passed_on = flight.FlightCallOptions(headers=[(b"x-dejaq-forwarded", b"1")])
    assert list(bare.do_action(action))
    with pytest.raises(flight.FlightUnauthenticatedError):
        list(bare.do_action(action, passed_on))
    bare.close()
    context = ssl.create_default_context(cafile=papers.ca)
    context.load_cert_chain(*pair)
    with httpx.Client(verify=context, timeout=PATIENCE_SECONDS) as web:
        url = f"https://{HOST}:{mutual.http.port}/v1/topics"
        assert web.get(url).status_code == 200
        assert web.get(url, headers={"x-dejaq-forwarded": "1"}).status_code == 401
        # A browser shows its certificate to whoever's page asks.
        assert web.get(url, headers={"origin": "https://evil.example"}).status_code == 403


# --- who only looks -------------------------------------------------------------------------------


def looked_at(site: Site, key: str) -> tuple[list[str], dict[str, object], dict[str, object]]:
    """The columns of a peek over Flight, a message of one over HTTP, and one by its id."""
    url = f"dejaq://127.0.0.1:{site.flight.port}"
    with Client(url, api_key=key) as client:
        table = client.peek("t")
    with httpx.Client(headers={"authorization": f"Bearer {key}"}, timeout=PATIENCE_SECONDS) as web:
        [one] = web.get(f"{site.http_url}/v1/topics/t/messages").json()["messages"]
        by_id = web.get(f"{site.http_url}/v1/topics/t/messages/{one['id']}").json()
        [dead] = web.get(f"{site.http_url}/v1/topics/t/dead-letters").json()["messages"]
        assert ("payload" in dead) == ("payload" in one)
        assert web.get(f"{site.http_url}/metrics").status_code == 200
    return table.column_names, one, by_id


def test_an_observer_sees_messages_but_not_what_is_in_them() -> None:
    with running() as site:
        make = site.broker.keys.create
        root = make("root", ["admin:*"])[1]
        watcher = make("watcher", ["observe:*"])[1]
        with Client(f"dejaq://127.0.0.1:{site.flight.port}", api_key=root) as client:
            client.create_topic("t")
            client.send("t", b"secret", key="k")
        columns, one, by_id = looked_at(site, watcher)
        assert "payload" not in columns
        assert {"id", "due", "key", "state"} <= set(columns)
        assert not {"payload", "payload_base64"} & {*one, *by_id}
        assert one["key"] == by_id["key"] == "k"
        columns, one, by_id = looked_at(site, root)
        assert "payload" in columns
        assert one["payload"] == by_id["payload"] == "secret"


def test_an_operator_can_let_observers_read() -> None:
    gate = Gate(observers_read=True)
    gate.keys.create("root", ["admin:*"])
    watcher = gate.principal(gate.keys.create("watcher", ["observe:*"])[1])
    assert gate.reads(watcher, "t")
    assert not Gate(gate.keys).reads(watcher, "t")


# --- grants that deny -----------------------------------------------------------------------------


def test_what_is_denied_is_refused_whatever_else_is_granted() -> None:
    with running() as site:
        make = site.broker.keys.create
        root = make("root", ["admin:*"])[1]
        grants = ["deny:produce:orders.secret", "produce:orders.*", "observe:*", "deny:admin:hr.*"]
        shop = make("shop", grants)[1]
        boss = make("boss", ["admin:*", "deny:consume:orders.*"])[1]
        url = f"dejaq://127.0.0.1:{site.flight.port}"
        with Client(url, api_key=root) as client:
            for topic in ("orders.eu", "orders.secret", "hr.pay"):
                client.create_topic(topic)
        with Client(url, api_key=shop) as client:
            client.send("orders.eu", b"x")
            with pytest.raises(Forbidden, match="no role 'produce' for topic orders.secret"):
                client.send("orders.secret", b"x")
            assert sorted(topic.name for topic in client.topics()) == ["orders.eu", "orders.secret"]
            assert sorted(client.stats()["topics"]) == ["orders.eu", "orders.secret"]
            with pytest.raises(Forbidden):
                client.peek("hr.pay")
        with Client(url, api_key=boss) as client:
            client.send("orders.eu", b"x")
            with pytest.raises(Forbidden, match="consume"):
                next(iter(client.consume("orders.eu", idle_ms=20_000)))
            listed = {row["name"]: row["grants"] for row in client.api_keys()}
        assert listed["shop"] == grants
