from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.url import read_url
from dejaqueue.journal.records.nats import objects as module
from dejaqueue.journal.records.nats.objects import NatsObjects, Pieces, _Listing, _name, _tokens
from tests.patience import PATIENCE_SECONDS, until
from tests.record_servers import NatsServers


@pytest.mark.parametrize(
    "name", ["a", "a/b", "a.b/c-d_e", "/", "a//b/", ".", "~", "%", "=41", "a b", "é*>", "a%2e"]
)
def test_a_name_is_tokens_and_back(name: str) -> None:
    tokens = _tokens(name)
    assert _name(tokens) == name
    assert not set(tokens) & set(" *>\t/")
    assert "" not in tokens.split(".")
    assert tokens.count(".") == name.count("/")


def test_pieces_are_read_as_they_were_written() -> None:
    pieces = Pieces("m", 2, 5, "sum", 7)
    assert Pieces.from_bytes(pieces.to_bytes()) == pieces


PARTITIONS = 8


def snapshot(topic: str, partition: int, position: int) -> str:
    return f"topics/{topic}/{partition:05d}/snapshots/{position:020d}"


class Asked(NatsObjects):
    """Objects on a real server; notes which subjects were looked at, and can have a look wait."""

    def __init__(self, servers: NatsServers) -> None:
        self.connection = NatsConnection(read_url(servers.url))
        super().__init__(read_url(servers.url), self.connection, 1 << 20)
        self.looks: list[str] = []
        self.goes_on = threading.Event()
        self.goes_on.set()

    def _named(self, subjects: str) -> list[str]:
        self.looks.append(subjects)
        assert self.goes_on.wait(PATIENCE_SECONDS)
        return super()._named(subjects)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    pytest.importorskip("nats")
    servers = NatsServers(tmp_path)
    try:
        asked = Asked(servers)
        for partition in range(PARTITIONS):
            asked.put(snapshot("t.1", partition, 10 + partition), b"x")
            asked.put(f"topics/t.1/{partition:05d}/parts/p", b"x")
        asked.put(snapshot("t.11", 0, 5), b"x")
        yield asked
        asked.connection.close()
    finally:
        servers.stop()


def names_of_all(asked: Asked) -> list[list[str]]:
    """What each partition finds, all of them asking at once: the first one is on its way before."""
    asked.goes_on.clear()
    prefixes = [f"topics/t.1/{partition:05d}/snapshots/" for partition in range(PARTITIONS)]
    with ThreadPoolExecutor(PARTITIONS) as threads:
        first = threads.submit(asked.names, prefixes[0])
        until(lambda: asked.looks, "the first look is under way")
        others = [threads.submit(asked.names, prefix) for prefix in prefixes[1:]]
        [listing] = asked._listings.values()
        until(lambda: listing.asking == PARTITIONS, "all of them ask")
        asked.put(snapshot("t.1", PARTITIONS - 1, 99), b"x")
        asked.goes_on.set()
        return [one.result(PATIENCE_SECONDS) for one in (first, *others)]


def test_partitions_that_look_for_snapshots_at_once_share_a_look_that_began_after_they_came(
    asked: Asked,
) -> None:
    found = names_of_all(asked)
    wanted: Any = [[snapshot("t.1", number, 10 + number)] for number in range(PARTITIONS)]
    wanted[-1].append(snapshot("t.1", PARTITIONS - 1, 99))  # it came before their look began
    assert found == wanted
    assert len(asked.looks) == 2
    assert asked._listings == {}


def test_a_long_list_is_not_made_for_several_together_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SHARED_NAMES_MAX", 2)
    listing = _Listing(lambda: ["a1", "b1", "b2"])
    listing.asking = 2
    first = listing.next_number()
    assert listing.names("b", first, list) == ["b1", "b2"]
    assert listing.names("a", first, list) == ["a1"], "it began after this one had come"
    assert listing.names("a", listing.next_number(), lambda: ["alone"]) == ["alone"]


def test_one_alone_looks_for_its_own_names_and_no_others(asked: Asked) -> None:
    assert asked.names("topics/t.1/00003/snapshots/") == [snapshot("t.1", 3, 13)]
    assert asked.names("topics/t.1/00003/") == [
        "topics/t.1/00003/parts/p",
        snapshot("t.1", 3, 13),
    ]
    assert [one.rpartition(".snapshots.")[0][-5:] for one in asked.looks[:1]] == ["00003"]
