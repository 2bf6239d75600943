"""API keys and the secret of a cluster of real brokers with JetStream beside each.

Covered: nothing but `dejaq serve --cluster` three times: the secret that they find, keys that all
of them make at once, a key that is forged, a broker that has lost touch, a lost admin key.
Not covered: every interleaving (tests/simulation/cluster/keys.py).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from dejaqueue import Client
from dejaqueue.access.api_keys import new_key
from dejaqueue.access.roles import Grant, Role
from dejaqueue.cli.main import main
from dejaqueue.cluster.embedded import nodes_of
from dejaqueue.cluster.jetstream_settings import journal_url
from dejaqueue.cluster.secret import FILE
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.url import read_url
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import DejaQError, Refused, Unauthenticated, Unavailable
from tests.cluster.embedded import EmbeddedCluster
from tests.patience import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.slow]

LEASE_MS = 3_000
NAMES = ("a", "b", "c")
FACT = "documents/keys"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    pytest.importorskip("nats")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = EmbeddedCluster(tmp_path, cluster__lease_ms=LEASE_MS)
    try:
        made.start(*NAMES)
        yield made
    finally:
        made.stop()


def at(cluster: EmbeddedCluster, name: str, key: str | None = None) -> Client:
    return Client(cluster.brokers[name].url, api_key=key)


def lets_in(cluster: EmbeddedCluster, name: str, key: str) -> bool:
    """Whether a broker knows a key: what needs no topic, no owner and no coordinator."""
    answer = httpx.get(
        f"{cluster.http_url(name)}/v1/topics",
        headers={"authorization": f"Bearer {key}"},
        timeout=PATIENCE_SECONDS,
    )
    assert answer.status_code in {200, 401, 503}, answer.text
    return answer.status_code == 200


def nats_url(cluster: EmbeddedCluster, secret: str) -> str:
    nodes = nodes_of(",".join(cluster.places[name] for name in NAMES))
    return journal_url(nodes, nodes[0], 3, secret)


def secret_of(tmp_path: Path, name: str) -> str:
    return (tmp_path / name / FILE).read_text().strip()


def _secret_is_found_and_not_computed(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    secrets = {secret_of(tmp_path, name) for name in NAMES}
    assert len(secrets) == 1
    for name in NAMES:
        assert (tmp_path / name / FILE).stat().st_mode & 0o777 == 0o600
        for path in (tmp_path / name, *(tmp_path / name).rglob("*")):
            assert path.stat().st_mode & 0o077 == 0 or path.is_file(), path
        streams = [one for one in (tmp_path / name / "jetstream").rglob("*") if one.is_file()]
        inside = [one for one in streams if "store" in one.parts]
        assert inside
        assert [str(one) for one in inside if one.stat().st_mode & 0o077] == []
    with pytest.raises((Unavailable, Refused)):  # as it was when passwords came from nothing
        connection = NatsConnection(read_url(nats_url(cluster, "")))
        connection.api("INFO", timeout_s=2)
    connection = NatsConnection(read_url(nats_url(cluster, secrets.pop())))
    try:
        connection.api("INFO", timeout_s=5)
    finally:
        connection.close()


def test_three_brokers_find_a_secret_and_their_keys_hold(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """One cluster for all of it: it takes a while to start."""
    _secret_is_found_and_not_computed(cluster, tmp_path)
    with at(cluster, "a") as client:
        root = str(client.create_key("root", ["admin:*"])["api_key"])
    until(lambda: all(lets_in(cluster, name, root) for name in NAMES), "root is known")
    with at(cluster, "b", root) as client:
        old = [str(client.create_key(f"old-{n}", ["produce:x"])["api_key"]) for n in range(9)]
    made, failures = _write_at_once(cluster, root)
    assert failures == []
    until(
        lambda: not any(lets_in(cluster, name, key) for name in NAMES for key in old),
        "no broker lets a revoked key in",  # within a lease: tests/simulation/cluster/keys.py
    )
    assert [lets_in(cluster, name, key) for name in NAMES for key in made] == [True] * 90
    _forge(cluster, tmp_path, root, made[0])
    _cut_off(cluster, root)
    _a_lost_admin_key_is_made_anew(cluster, tmp_path, old[0])


def _write_at_once(cluster: EmbeddedCluster, root: str) -> tuple[list[str], list[BaseException]]:
    made: list[str] = []
    failures: list[BaseException] = []
    begin = threading.Barrier(len(NAMES))

    def work(place: int) -> None:
        try:
            with at(cluster, NAMES[place], root) as client:
                begin.wait(PATIENCE_SECONDS)
                for n in range(10):
                    name = f"new-{place}-{n}"
                    made.append(str(client.create_key(name, ["produce:x"])["api_key"]))
                    if n < 3:
                        client.revoke_key(f"old-{3 * place + n}")
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(NAMES))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    return made, failures


def _forge(cluster: EmbeddedCluster, tmp_path: Path, root: str, known: str) -> None:
    """Somebody has the password of the servers (it was seen on the way) and not the secret."""
    coordinator = open_coordinator(nats_url(cluster, secret_of(tmp_path, "a")))
    try:
        before = coordinator.get(FACT)
        assert before is not None
        values = json.loads(before.value)
        key, text = new_key("mine", (Grant(Role.ADMIN, "*"),), 0, None)
        values["keys"].append(key.to_stored())
        coordinator.put(FACT, json.dumps(values).encode())
        until(lambda: "stay in force" in "".join(map(cluster.log, NAMES)), "a word in the log")
        for name in NAMES:
            assert not lets_in(cluster, name, text)
            assert lets_in(cluster, name, known)

        def is_put_back() -> bool:
            fact = coordinator.get(FACT)
            assert fact is not None
            return "mine" not in [one["name"] for one in json.loads(fact.value)["keys"]]

        until(is_put_back, "what was known is put back")
        pages = [
            httpx.get(
                f"{cluster.http_url(name)}/metrics",
                headers={"authorization": f"Bearer {root}"},
                timeout=PATIENCE_SECONDS,
            ).text
            for name in NAMES
        ]
        assert any("dejaq_key_documents_refused_total 1" in page for page in pages)
    finally:
        coordinator.close()


def _cut_off(cluster: EmbeddedCluster, root: str) -> None:
    """Two of three are gone: the third reaches no coordinator, and confirms nothing."""
    assert lets_in(cluster, "a", root)
    cluster.brokers["b"].kill()
    cluster.brokers["c"].kill()
    until(lambda: not lets_in(cluster, "a", root), "keys are not confirmed")
    with pytest.raises((Unavailable, Unauthenticated)) as caught, at(cluster, "a", root) as client:
        client.api_keys()
    assert isinstance(caught.value, DejaQError)
    assert "cannot be confirmed" in str(caught.value)


def _a_lost_admin_key_is_made_anew(cluster: EmbeddedCluster, tmp_path: Path, old: str) -> None:
    """In the data directory of a node that is stopped; the others learn of it when it is back."""

    def create(name: str) -> Result:
        words = ("create", name, "--grant", "admin:*", "--data", str(tmp_path / "b"))
        return CliRunner().invoke(main, ("key", *words))

    made = create("second")
    assert made.exit_code == 0, made.output
    key = made.stdout.strip()
    cluster.brokers["b"].start()
    until(lambda: lets_in(cluster, "a", key), "a key made at a stopped node")
    assert not lets_in(cluster, "b", old)
    refused = create("third")
    assert refused.exit_code != 0
    assert "in use by process" in refused.output
