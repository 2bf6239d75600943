"""The ZooKeeper of the simulated cluster answers as a real one does.

Covered: every call that the coordinator makes, in 300 drawn orders, transactions that fail in each
place, watches, and what goes with its session. Not covered: when a session ends of which nobody
hears, which is the clock's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from dev.services import Service, missing
from dev.services.zookeeper import ZooKeeper
from tests.patience import until
from tests.simulation.cluster.zookeeper_server import Op, ZooKeeperServer

NAMES = ("a", "b", "c")
CALLS = 300


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[Service]:
    if lacking := missing("zookeeper"):
        pytest.skip(lacking)
    service = ZooKeeper(tickTime="500", maxSessionTimeout="120000")
    with service.start():
        yield service


class _Both:
    """A real ZooKeeper and a simulated one, asked the same.

    What differs is the numbers of transactions: those of one are in the order of the other's.
    """

    def __init__(self, service: Service, root: str) -> None:
        self.root = root
        self.real = KazooClient(hosts=f"127.0.0.1:{service.port}", timeout=20)
        self.real.start()
        self.server = ZooKeeperServer(lambda: 0)
        session = self.server.connect(0, 20_000_000)
        assert session is not None
        self.session = session.number
        self.zxids: dict[int, int] = {}
        self.fired: tuple[list[str], list[str]] = ([], [])
        self.one(Op("create", root))

    def _told(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KazooException as wrong:
            return type(wrong)

    def _bare(self, answer: Any) -> Any:
        if hasattr(answer, "mzxid"):
            return answer.version, bool(answer.ephemeralOwner)
        if isinstance(answer, list | tuple):
            return [self._bare(one) for one in answer]
        return type(answer) if isinstance(answer, Exception) else answer

    def _note(self, real: Any, told: Any) -> None:
        """Of which transaction each says that it is."""
        if hasattr(told, "mzxid"):
            assert self.zxids.setdefault(told.mzxid, real.mzxid) == real.mzxid
        elif isinstance(real, list | tuple):
            for one, other in zip(real, told, strict=True):
                self._note(one, other)

    def compare(self, real: Callable[[], Any], told: Callable[[], Any]) -> Any:
        """The simulated answer, which is the real one."""
        theirs, ours = self._told(real), self._told(told)
        if isinstance(ours, list) and all(isinstance(one, str) for one in ours):
            theirs = sorted(theirs)
            ours = sorted(ours)
        assert self._bare(theirs) == self._bare(ours)
        self._note(theirs, ours)
        return ours

    def one(self, op: Op) -> Any:
        """A change by itself."""

        def told() -> Any:
            (answer,) = self.server.change(self.session, [op])
            if isinstance(answer, Exception):
                raise answer
            return answer

        calls: dict[str, Callable[[], Any]] = {
            "create": lambda: self.real.create(op.path, op.value, ephemeral=op.ephemeral),
            "set": lambda: self.real.set(op.path, op.value, op.version),
            "delete": lambda: self.real.delete(op.path, op.version),
        }
        return self.compare(calls[op.what], told)

    def all(self, ops: list[Op]) -> Any:
        """A transaction."""

        def real() -> Any:
            transaction = self.real.transaction()
            for op in ops:
                if op.what == "create":
                    transaction.create(op.path, op.value, ephemeral=op.ephemeral)
                elif op.what == "set":
                    transaction.set_data(op.path, op.value, op.version)
                else:
                    transaction.delete(op.path, op.version)
            return transaction.commit()

        return self.compare(real, lambda: self.server.change(self.session, ops))

    def watch(self, what: str, path: str) -> None:
        """Be told of the next change."""
        theirs, ours = self.fired

        def real() -> Any:
            call = self.real.get if what == "data" else self.real.get_children
            return call(path, watch=lambda event: theirs.append(f"{what} {path}"))

        def told() -> Any:
            call: Any = self.server.get if what == "data" else self.server.children
            return call(path, lambda event: ours.append(f"{what} {path}"))

        self.compare(real, told)


def _drawn(dice: random.Random, root: str, number: int) -> Op:
    path = f"{root}/{dice.choice(NAMES)}"
    version = dice.choice([-1, -1, 0, 1])
    what = dice.choice(["create", "set", "delete"])
    if what == "create":
        return Op("create", path, b"v%d" % number, ephemeral=dice.random() < 0.3)
    return Op(what, path, b"" if what == "delete" else b"v%d" % number, version)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_calls_have_the_same_answers(zookeeper: Service, seed: int) -> None:
    dice = random.Random(seed)
    both = _Both(zookeeper, f"/same{seed}")
    root = both.root
    try:
        for number in range(CALLS):
            path, what = f"{root}/{dice.choice(NAMES)}", dice.random()
            if what < 0.3:
                both.one(_drawn(dice, root, number))
            elif what < 0.6:
                both.all([_drawn(dice, root, number) for _ in range(dice.randint(2, 3))])
            elif what < 0.7:
                both.compare(partial(both.real.get, path), partial(both.server.get, path))
            elif what < 0.8:
                both.compare(partial(both.real.exists, path), partial(both.server.exists, path))
            else:
                both.watch(dice.choice(["data", "children"]), dice.choice([root, path]))
        until(lambda: len(both.fired[0]) >= len(both.fired[1]), f"fired: {both.fired}")
        assert sorted(both.fired[0]) == sorted(both.fired[1])
        assert len(both.fired[1]) > 10
        order = [both.zxids[one] for one in sorted(both.zxids)]
        assert order == sorted(order)
        assert len(order) > 20
    finally:
        both.real.stop()
        both.real.close()


def test_what_a_session_holds_goes_with_it(zookeeper: Service) -> None:
    both = _Both(zookeeper, "/held")
    other = KazooClient(hosts=f"127.0.0.1:{zookeeper.port}", timeout=20)
    other.start()
    try:
        both.one(Op("create", "/held/stays"))
        both.one(Op("create", "/held/goes", ephemeral=True))
        both.real.stop()
        both.server.end(both.session)
        assert other.get_children("/held") == both.server.children("/held") == ["stays"]
    finally:
        for client in (both.real, other):
            client.stop()
            client.close()
