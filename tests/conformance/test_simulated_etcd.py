"""The etcd of the simulated cluster answers as a real one does.

Covered: every call that the coordinator makes, in 300 drawn orders, with revisions, leases that do
not exist, and streams of changes. Not covered: when a lease ends, which is the clock's.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from dejaqueue.connections.etcd import EtcdGateway, parse_url
from dev.services import Service, missing, start
from tests.simulation.cluster.etcd_server import EtcdServer

KEYS = ("a", "a/b", "a/c", "b")
CALLS = 300


@pytest.fixture(scope="module")
def etcd() -> Iterator[Service]:
    if lacking := missing("etcd"):
        pytest.skip(lacking)
    with start("etcd") as service:
        yield service


def _pack(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class _Both:
    """A real etcd and a simulated one, asked the same.

    What differs is the first revision, and what leases are called.
    """

    def __init__(self, port: int, space: str) -> None:
        self.gateway = EtcdGateway(parse_url(f"etcd://127.0.0.1:{port}"))
        self.space = space
        self.server = EtcdServer(lambda: 0)
        self.first = int(
            self.gateway.call("/v3/kv/range", {"key": _pack("none")})["header"]["revision"]
        )
        self.apart = self.first - self.server.revision
        self.leases: dict[str, str] = {"": "", "7777": "7777"}
        """Of the real one, by those of the other."""

    def key(self, name: str) -> str:
        return _pack(self.space + name)

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The simulated answer, which is the real one."""
        theirs = json.loads(json.dumps(body), object_hook=self._translated)
        told = self.server.call(path, body)
        real = self.gateway.call(path, theirs, reads=True, expects=(5, 11))
        if path == "/v3/lease/grant":
            self.leases[told["ID"]] = real["ID"]
        assert self._bare(real, self.apart) == self._bare(told, 0), (path, body)
        return told

    def _translated(self, values: dict[str, Any]) -> dict[str, Any]:
        """A request, as the real one has to be asked."""
        changed = dict(values)
        for name in ("mod_revision", "revision"):
            if int(values.get(name, 0)) > 0:
                changed[name] = str(int(values[name]) + self.apart)
        for name in ("lease", "ID"):
            if name in values:
                changed[name] = self.leases[values[name]]
        return changed

    def _bare(self, answer: Any, apart: int) -> Any:
        """An answer without what may differ."""
        if isinstance(answer, list):
            return [self._bare(one, apart) for one in answer]
        if not isinstance(answer, dict):
            return answer
        if "code" in answer:
            return {"code": answer["code"]}
        bare = {}
        for name, value in answer.items():
            if name in {"mod_revision", "create_revision", "revision"}:
                bare[name] = int(value) - apart
            elif name in {"cluster_id", "member_id", "raft_term", "header", "ID", "prev_kv"}:
                if name == "header":
                    bare[name] = int(value["revision"]) - apart
            elif name == "lease":
                bare[name] = bool(int(value))
            else:
                bare[name] = self._bare(value, apart)
        return bare


@pytest.mark.parametrize("seed", [1, 2, 3])
# tidy: allow no-assert, because each call of ask compares both answers
def test_the_same_calls_have_the_same_answers(etcd: Service, seed: int) -> None:
    dice = random.Random(seed)
    both = _Both(etcd.port, f"same{seed}/")
    revisions, leases = [0, 1], ["", "", "7777"]
    try:
        for number in range(CALLS):
            key = both.key(dice.choice(KEYS))
            compare = [
                {"key": key, "target": "MOD", "result": "EQUAL",
                 "mod_revision": str(dice.choice(revisions))}
            ]  # fmt: skip
            put: dict[str, Any] = {"key": key, "value": _pack(f"v{number}")}
            if lease := dice.choice(leases):
                put["lease"] = lease
            what = dice.random()
            if what < 0.4:
                change: dict[str, Any] = {"request_put": put}
                told = both.ask("/v3/kv/txn", {"compare": compare, "success": [change]})
                told = both.ask("/v3/kv/txn", {"compare": [], "success": [change]})
                if "header" in told:
                    revisions.append(int(told["header"]["revision"]))
            elif what < 0.6:
                change = {"request_delete_range": {"key": key}}
                both.ask("/v3/kv/txn", {"compare": compare, "success": [change]})
                both.ask("/v3/kv/txn", {"compare": [], "success": [change]})
            elif what < 0.7:
                leases.append(both.ask("/v3/lease/grant", {"TTL": "60"})["ID"])
            elif what < 0.8:
                both.ask("/v3/lease/keepalive", {"ID": dice.choice(leases[2:])})
            else:
                end = both.key("c") if dice.random() < 0.7 else ""
                limit = dice.choice([0, 1, 2])
                body = {"key": key, "limit": limit} | ({"range_end": end} if end else {})
                both.ask("/v3/kv/range", body)
        _compare_changes(both)
    finally:
        both.gateway.close()


def _compare_changes(both: _Both) -> None:
    """All that happened, as the streams tell it."""
    first, end = base64.b64decode(both.key("")), base64.b64decode(both.key("z"))
    wanted = [event for _, event in both.server.since(2, first, end)]
    create = {
        "key": both.key(""), "range_end": both.key("z"), "start_revision": str(both.first + 1)
    }  # fmt: skip
    seen: list[dict[str, Any]] = []
    try:
        with both.gateway.stream("/v3/watch", {"create_request": create}) as response:
            for line in response.iter_lines():
                seen += json.loads(line)["result"].get("events", [])
                if len(seen) >= len(wanted):
                    break
    except httpx.ReadTimeout:
        pass
    assert both._bare(seen, both.apart) == both._bare(wanted, 0)
    assert wanted
