"""DOQ's gRPC API over TLS and with keys: who may do what, whose quotas it counts for, and what ends
a stream. The calls themselves: tests/doq/test_grpc.py.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dejaqueue.access.routes import ROUTES
from dejaqueue.http.doq.door.calls import CALLS
from dejaqueue.model import Topic, TopicKind
from dejaqueue.setting_groups import DoqSettings, QuotaSettings
from tests.doq.grpc_client import generated, request, stub_of
from tests.integration.access_fixture import MINE, THEIRS, Site, give_keys, running
from tests.integration.papers import HOST, Papers, server_tls
from tests.patience import PATIENCE_SECONDS

CODE = grpc.StatusCode
DOQ = DoqSettings(enabled=True, port=0)
STREAMS = {"EnqueueStream": "Enqueue", "DequeueStream": "Dequeue"}


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def site(papers: Papers) -> Iterator[Site]:
    """Over TLS, with keys, and the queues `mine` and `theirs`."""
    with running(server_tls(papers.broker), doq=DOQ) as served:
        give_keys(served)
        for name in (MINE, THEIRS):
            served.broker.create_topic(Topic(name, TopicKind.FAIR))
        yield served


@contextmanager
def client(
    site: Site, papers: Papers, pair: tuple[str, str] | None = None, ca: str = ""
) -> Iterator[Any]:
    files = [Path(ca or papers.ca), *map(Path, reversed(pair or ()))]
    shown = grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))
    with grpc.secure_channel(f"{HOST}:{site.http.doq_port}", shown) as channel:
        yield stub_of(channel)


def answer(
    stub: Any, name: str, key: str | None, /, *, more: tuple[Any, ...] = (), **fields: Any
) -> tuple[Any, str]:
    """Status and text of a call, or of the first answer of a stream."""
    metadata = (*(() if key is None else (("authorization", f"Bearer {key}"),)), *more)
    kept = {"metadata": metadata, "timeout": PATIENCE_SECONDS}
    try:
        if name in STREAMS:
            for _ in getattr(stub, name)(iter([request(STREAMS[name], **fields)]), **kept):
                break
        else:
            getattr(stub, name)(request(name, **fields), **kept)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return CODE.OK, ""


def naming(name: str, topic: str) -> dict[str, Any]:
    """The fields of a request about a queue, as far as its call has such."""
    kinds = {field.name for field in generated()[0].DESCRIPTOR.message_types_by_name[
        f"{STREAMS.get(name, name)}Request"].fields}  # fmt: skip
    values = {"name": topic, "queueName": topic, "type": "fair", "number": 1, "content": "a"}
    return {field: value for field, value in values.items() if field in kinds}


@pytest.mark.parametrize("name", [*CALLS, *STREAMS])
def test_each_call_needs_what_the_same_http_route_needs(
    site: Site, papers: Papers, name: str
) -> None:
    route = CALLS[STREAMS.get(name, name)].route
    roles = {role.value for role in ROUTES[route].rule.roles}
    with client(site, papers) as stub:
        for who in ("none", "unknown", "wrong secret", "revoked"):
            code, text = answer(stub, name, site.keys[who], **naming(name, MINE))
            assert code is CODE.UNAUTHENTICATED, (who, text)
        is_open = name in ("GetQueues", "GenerateIDs")
        for role in ("produce", "consume", "observe", "manage"):
            if name == "DeleteQueue":
                continue  # it would be gone; the others show that the table is asked
            if name.startswith("Dequeue"):
                answer(stub, "Enqueue", site.keys["root"], queueName=MINE, content="a")
            code, text = answer(stub, name, site.keys[f"{role} mine"], **naming(name, MINE))
            may = is_open or role in roles
            assert (code is not CODE.PERMISSION_DENIED) is may, (role, code, text)
            code, _ = answer(stub, name, site.keys[f"{role} theirs"], **naming(name, MINE))
            assert (code is CODE.PERMISSION_DENIED) is not is_open, (role, code)


def test_queues_are_listed_to_whom_they_may_be_shown(site: Site, papers: Papers) -> None:
    with client(site, papers) as stub:
        for who, expected in (("root", [MINE, THEIRS]), ("observe mine", [MINE])):
            metadata = (("authorization", f"Bearer {site.keys[who]}"),)
            found = stub.GetQueues(request("GetQueues"), metadata=metadata)
            assert sorted(one.name for one in found.queues) == expected


def test_two_keys_are_refused__and_so_is_another_authority(site: Site, papers: Papers) -> None:
    root = site.keys["root"]
    with client(site, papers) as stub:
        twice = (("authorization", f"Bearer {root}"),)
        code, _ = answer(stub, "GetQueues", root, more=twice)
        assert code is CODE.UNAUTHENTICATED
    with client(site, papers, ca=papers.other_ca) as stub:
        assert answer(stub, "GetQueues", root)[0] is CODE.UNAVAILABLE
    with grpc.insecure_channel(f"{HOST}:{site.http.doq_port}") as channel:
        assert answer(stub_of(channel), "GetQueues", root)[0] is CODE.UNAVAILABLE


def test_a_stream_ends_when_its_key_is_revoked(site: Site, papers: Papers) -> None:
    key, text = site.broker.keys.create("leaving", [f"consume:{MINE}", f"produce:{MINE}"])
    metadata = (("authorization", f"Bearer {text}"),)
    says: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with client(site, papers) as stub:
        sent = stub.EnqueueStream(iter(says.get, None), metadata=metadata, timeout=PATIENCE_SECONDS)
        says.put(request("Enqueue", queueName=MINE, content="a"))
        assert next(sent).success
        site.broker.keys.revoke(key.id)
        with pytest.raises(grpc.RpcError) as error:
            next(sent)
        assert error.value.code() is CODE.UNAUTHENTICATED
        says.put(None)


def test_mutual_tls_lets_in_by_certificate(papers: Papers) -> None:
    with running(server_tls(papers.broker, papers.ca), doq=DOQ) as site:
        site.broker.keys.create("root", ["admin:*"])
        site.broker.keys.create("cert:shop@queue.example", ["manage:*"])
        with client(site, papers, papers.client) as stub:
            assert answer(stub, "CreateQueue", None, name="q", type="fair")[0] is CODE.OK
        with client(site, papers, papers.stranger) as stub:
            assert answer(stub, "GetQueues", None)[0] is CODE.UNAVAILABLE


def test_a_certificate_that_is_replaced_is_shown_from_then_on(
    papers: Papers, tmp_path: Path
) -> None:
    pair = (str(tmp_path / "shown.pem"), str(tmp_path / "shown.key"))

    def show(issued: tuple[str, str]) -> None:
        for file, source in zip(pair, issued, strict=True):
            Path(file).write_bytes(Path(source).read_bytes())

    show(papers.elsewhere)
    tls = server_tls(pair)
    with running(tls, doq=DOQ) as site:
        with client(site, papers) as stub:
            assert answer(stub, "GetQueues", None)[0] is CODE.UNAVAILABLE, "of another name"
        show(papers.broker)
        assert tls.reload()
        with client(site, papers) as stub:
            assert answer(stub, "GetQueues", None)[0] is CODE.OK


def test_quotas_count_here_too() -> None:
    quotas = QuotaSettings(streams_max=1, rows_per_s=2)
    with running(doq=DOQ, quotas=quotas) as site:
        site.broker.keys.create("root", ["admin:*"])
        text = site.broker.keys.create("small", ["admin:*"])[1]
        metadata = (("authorization", f"Bearer {text}"),)
        with grpc.insecure_channel(f"127.0.0.1:{site.http.doq_port}") as channel:
            stub = stub_of(channel)
            assert answer(stub, "CreateQueue", text, name="q", type="fair")[0] is CODE.OK
            says: queue.SimpleQueue[Any] = queue.SimpleQueue()
            says.put(request("Enqueue", queueName="q", content="a"))
            sent = stub.EnqueueStream(iter(says.get, None), metadata=metadata)
            assert next(sent).success
            asked: dict[str, dict[str, Any]] = {
                "DequeueStream": {"queueName": "q"},
                "Enqueue": {"queueName": "q", "content": "b"},
            }
            for name, fields in asked.items():
                found = [answer(stub, name, text, **fields) for _ in range(3)]
                assert CODE.RESOURCE_EXHAUSTED in {code for code, _ in found}, name
                assert all("small" in said for code, said in found if code is not CODE.OK)
            says.put(None)
            assert list(sent) == []
