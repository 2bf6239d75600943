"""Covers: pieces are applied by whole turns, however many pieces a turn has, and however often what
comes of it breaks off; what is missing, damaged or ended is told.

Not covered: the broker that applies them (test_standby.py).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.log_chain import LogChain
from dejaqueue.backup.log_pieces import LogPiece, digest_of
from dejaqueue.broker.standby.follower import (
    HELD_PIECES_MAX,
    Follower,
    FollowingEndedError,
)
from dejaqueue.catalogue.changes import Change
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.connections.bucket import DirectoryBucket
from dejaqueue.errors import JournalDamaged, Unavailable
from dejaqueue.journal.interface import Entry
from dejaqueue.setting_groups import BackupSettings
from tests.backups import client_of, newest, settings_of, taken
from tests.patience import until

NEVER = threading.Event()


class Recorder:
    """A broker that notes what it is given."""

    def __init__(self) -> None:
        self.state = CatalogueState()
        self.given: list[tuple[str, int, int]] = []
        self.faults = 0

    def catalogue_state(self) -> CatalogueState:
        return self.state

    def follow_change(self, change: Change, revision: int) -> None:
        if revision == self.state.revision + 1:
            self.state.apply(change, revision)

    def follow_entries(
        self, topic: str, partition: int, found: Sequence[tuple[int, Entry]]
    ) -> Future[Any]:
        done: Future[Any] = Future()
        if self.faults:
            self.faults -= 1
            done.set_exception(Unavailable("a test", 1))
            return done
        self.given += [(topic, partition, position) for position, _ in found]
        done.set_result(None)
        return done


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> list[LogPiece]:
    """What a broker has archived of its first moments, from an empty directory on."""
    from dejaqueue.broker.backup import schedule
    from dejaqueue.broker.broker import Broker

    root = tmp_path_factory.mktemp("site")
    url = str(root / "archive")
    backup = BackupSettings(url=url, interval_ms=86_400_000, archive_interval_ms=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "FIRST_MS", 3_600_000)
        broker = Broker(settings_of(root / "data").model_copy(update={"backup": backup}))
        broker.start()
        assert taken(broker, url)["state"] == "done"
        client = client_of(broker)
        client.create_topic("a")
        for number in range(8):  # a piece for each, however slow the archiver is
            client.send("a", b"%d" % number, delay=3_600)
            until(lambda: broker.backups.archiver.lag_us() == 0, "all is archived")
        broker.stop()
    chain = LogChain(Archive.open(url).bucket, newest(url).chain)
    return list(chain.pieces(chain.numbers()))


def stored(root: Path, pieces: Sequence[LogPiece]) -> LogChain:
    """A chain of these pieces, numbered and linked anew."""
    chain, previous = LogChain(DirectoryBucket(root), pieces[0].chain), ""
    for number, piece in enumerate(pieces, 1):
        content = bytes(replace(piece, number=number, previous=previous).encode())
        assert chain.put_new(number, content)
        previous = digest_of(content)
    return chain


def follower_of(broker: Recorder, chain: LogChain) -> Follower:
    return Follower(broker, chain, lambda _: None, {}, number=0, previous="", at_ms=0)


def positions(broker: Recorder) -> list[int]:
    return [position for _, _, position in broker.given]


def test_a_turn_is_applied_when_it_ends__of_few_pieces_and_of_many(
    tmp_path: Path, pieces: list[LogPiece]
) -> None:
    whole = Recorder()
    follower = follower_of(whole, stored(tmp_path / "whole", pieces))
    while follower.step(NEVER):
        continue
    assert positions(whole) == list(range(1, len(whole.given) + 1))
    assert len(whole.given) >= 8
    assert (follower.number, follower.read) == (len(pieces), len(pieces))
    # The same pieces as one turn: all but the last say no instant.
    assert len(pieces) > HELD_PIECES_MAX + 1
    one_turn = [*(replace(piece, at_ms=0) for piece in pieces[:-1]), pieces[-1]]
    # The catalogue's in the last of them, as may be: they come one log after the other.
    for number in (2, len(pieces)):
        broker = Recorder()
        chain = stored(tmp_path / f"{number}", one_turn[-number:])
        waiting = follower_of(broker, chain)
        while waiting.step(NEVER):
            continue
        assert waiting.number == number
    ends = Recorder()
    unended = follower_of(ends, stored(tmp_path / "unended", one_turn[:-1]))
    while unended.step(NEVER):
        continue
    assert (ends.given, ends.state.revision, unended.number) == ([], 0, 0)
    assert unended.read == len(pieces) - 1
    last = replace(one_turn[-1], number=len(pieces), previous=unended.read_previous)
    assert unended.chain.put_new(len(pieces), bytes(last.encode()))
    assert unended.step(NEVER)
    assert ends.given == whole.given


def test_what_breaks_off_is_done_again(tmp_path: Path, pieces: list[LogPiece]) -> None:
    broker = Recorder()
    follower = follower_of(broker, stored(tmp_path, pieces))
    for _ in range(3):
        broker.faults = 1
        with pytest.raises(Unavailable):
            while True:
                follower.step(NEVER)
        follower.again()
    while follower.step(NEVER):
        continue
    assert sorted(set(positions(broker))) == list(range(1, max(positions(broker)) + 1))


def test_the_end_of_a_chain_and_damage_are_told(tmp_path: Path, pieces: list[LogPiece]) -> None:
    chain = stored(tmp_path / "a", pieces)
    end = LogPiece(chain.name, len(pieces) + 1, "", "9f", 0, (), fence="a1")
    follower = follower_of(Recorder(), chain)
    while follower.step(NEVER):
        continue
    number = len(pieces) + 1
    linked = replace(end, previous=follower.read_previous)
    assert chain.put_new(number, bytes(linked.encode()))
    with pytest.raises(FollowingEndedError, match="a1"):
        follower.step(NEVER)
    assert follower.read == len(pieces)
    broken = stored(tmp_path / "b", pieces[:2])
    other = replace(pieces[2], number=3, previous="ab" * 32)
    assert broken.put_new(3, bytes(other.encode()))
    astray = follower_of(Recorder(), broken)
    with pytest.raises(JournalDamaged, match="does not follow the one before"):
        while astray.step(NEVER):
            continue
