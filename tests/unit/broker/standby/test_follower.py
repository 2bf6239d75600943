"""Covers: the chain of one broker is applied by whole turns, however many pieces a turn has, and
strands by cuts that they have whole: logs that go from one to another, entries that two have,
topics that are deleted and made again, strands that come later, much that waits; whatever breaks
off in between; what is missing, damaged or ended is told.

Not covered: the broker that applies them (test_standby.py), one strand (test_strand_reader.py),
what brokers of a cluster archive (tests/cluster/test_standby.py).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.log_chain import LogChain
from dejaqueue.backup.log_pieces import LogPiece, digest_of
from dejaqueue.backup.strands import strand_name
from dejaqueue.broker.backup.record_slices import record_slice
from dejaqueue.broker.standby import follower as follower_module
from dejaqueue.broker.standby.follower import CUTS_MAX, Follower, FollowingEndedError, LogGap
from dejaqueue.broker.standby.record import StandbyRecord, StandbyState
from dejaqueue.catalogue.changes import (
    Change,
    ClosedTopic,
    DeletedTopic,
    DeletingTopic,
    MadeTopic,
    UsedTopic,
)
from dejaqueue.catalogue.log import JOURNAL, CatalogueLog
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.connections.bucket import DirectoryBucket
from dejaqueue.errors import JournalDamaged, Unavailable
from dejaqueue.journal.interface import Entry, Journal
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.segments.log_turn import LogSlice
from dejaqueue.journal.segments.store import OWN_NAME, PARTITION_BITS
from dejaqueue.model import Topic
from dejaqueue.setting_groups import BackupSettings
from dejaqueue.testing.journal_conformance import fill
from tests.backups import client_of, newest, settings_of, taken
from tests.patience import until

NEVER = threading.Event()


class Recorder:
    """A broker that notes what it is given; of each partition, entries follow each other."""

    def __init__(self) -> None:
        self.state = CatalogueState()
        self.tails: dict[tuple[int, int], int] = {}
        self.faults = 0

    def catalogue_state(self) -> CatalogueState:
        return self.state.copy()

    def follow_change(self, change: Change, revision: int) -> None:
        if revision > self.state.revision:
            self.state.apply(change, revision)

    def follow_entries(
        self, topic: str, partition: int, found: Sequence[tuple[int, Entry]]
    ) -> Future[Any]:
        done: Future[Any] = Future()
        if self.faults:
            self.faults -= 1
            done.set_exception(Unavailable("a test", 1))
            return done
        row = self.state.rows.get(topic) or self.state.leaving[topic]
        place = row.number, partition
        for position, _ in found:
            tail = self.tails.get(place, 0)
            assert position <= tail + 1, f"{topic}: {position} behind {tail}"
            self.tails[place] = max(tail, position)
        done.set_result(None)
        return done


def all_steps(follower: Follower) -> None:
    follower.look()
    while follower.step(NEVER):
        continue


# --- the chain of one broker ----------------------------------------------------------------------


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


def follower_of(broker: Recorder, root: Path, chain: str) -> Follower:
    record = StandbyRecord("a1", StandbyState.FOLLOWING, "9f", chain)
    return Follower(broker, DirectoryBucket(root), record, lambda _: None, in_strands=False)


@pytest.mark.parametrize("held_bytes_max", [follower_module.HELD_BYTES_MAX, 0])
def test_a_turn_is_applied_when_it_ends__of_few_pieces_and_of_many(
    tmp_path: Path,
    pieces: list[LogPiece],
    monkeypatch: pytest.MonkeyPatch,
    held_bytes_max: int,
) -> None:
    monkeypatch.setattr(follower_module, "HELD_BYTES_MAX", held_bytes_max)
    whole = Recorder()
    name = stored(tmp_path / "whole", pieces).name
    follower = follower_of(whole, tmp_path / "whole", name)
    all_steps(follower)
    [tail] = whole.tails.values()
    assert tail >= 8
    strand = follower.strands[name]
    assert (strand.number, strand.read, follower.waits) == (len(pieces), len(pieces), False)
    assert follower.at_ms == max(one.at_ms for one in pieces)
    # The same pieces as one turn: all but the last say no instant.
    one_turn = [*(replace(piece, at_ms=0) for piece in pieces[:-1]), pieces[-1]]
    ends = Recorder()
    unended = follower_of(ends, tmp_path / "unended", name)
    chain = stored(tmp_path / "unended", one_turn[:-1])
    all_steps(unended)
    strand = unended.strands[name]
    assert (ends.tails, ends.state.revision, strand.number) == ({}, 0, 0)
    assert (strand.read, unended.waits) == (len(pieces) - 1, True)
    last = replace(one_turn[-1], number=len(pieces), previous=strand.read_previous)
    assert chain.put_new(len(pieces), last.encode())
    assert unended.step(NEVER)
    assert (ends.tails, ends.state) == (whole.tails, whole.state)


def test_what_breaks_off_is_done_again(tmp_path: Path, pieces: list[LogPiece]) -> None:
    broker = Recorder()
    follower = follower_of(broker, tmp_path, stored(tmp_path, pieces).name)
    for _ in range(3):
        broker.faults = 1
        with pytest.raises(Unavailable):
            all_steps(follower)
        follower.again()
    all_steps(follower)
    [tail] = broker.tails.values()
    assert tail >= 8


def test_the_end_of_a_chain_and_damage_are_told(tmp_path: Path, pieces: list[LogPiece]) -> None:
    chain = stored(tmp_path / "a", pieces)
    follower = follower_of(Recorder(), tmp_path / "a", chain.name)
    all_steps(follower)
    assert follower.strands[chain.name].seal("a1", "9f")
    other = follower_of(Recorder(), tmp_path / "a", chain.name)
    with pytest.raises(FollowingEndedError, match="a1"):
        all_steps(other)
    assert other.strands[chain.name].number == len(pieces)  # and what is before it is applied
    broken = stored(tmp_path / "b", pieces[:2])
    another = replace(pieces[2], number=3, previous="ab" * 32)
    assert broken.put_new(3, bytes(another.encode()))
    astray = follower_of(Recorder(), tmp_path / "b", broken.name)
    with pytest.raises(JournalDamaged, match="does not follow the one before"):
        all_steps(astray)


# --- strands --------------------------------------------------------------------------------------

CHAIN = "00000000000000ab"
A, B, A_AGAIN = "1/0", "3/0", "8/0"
"""Logs of the topics that the changes make."""
CHANGES: list[Change] = [
    MadeTopic(Topic("a")),
    UsedTopic("a"),
    MadeTopic(Topic("b")),
    UsedTopic("b"),
    DeletingTopic("a"),
    ClosedTopic("a", 7),
    DeletedTopic("a"),
    MadeTopic(Topic("a")),
    UsedTopic("a"),
]


class Strands:
    """Stores what brokers archive, and follows it."""

    def __init__(self, root: Path) -> None:
        self.bucket = DirectoryBucket(root)
        self._known: dict[str, tuple[int, str]] = {}
        self._at_ms = 0
        store, random = MemoryStore(shards=1), np.random.default_rng(1)
        self._entries: Journal = store.open("t", 0)
        for _ in range(40):
            fill(self._entries, random, 1, rows=2)
        own = MemoryStore(shards=1)
        log = CatalogueLog(own)
        for change in CHANGES:
            log.change(lambda change=change: change)  # type: ignore[misc]
        log.close()
        self._changes = own.open(JOURNAL, 0)
        self.broker = Recorder()
        self.follower = self.follower_of({}, {})

    def follower_of(
        self, begun: Mapping[str, tuple[int, str]], logs: Mapping[str, int], at_ms: int = 0
    ) -> Follower:
        record = StandbyRecord(
            "a1", StandbyState.FOLLOWING, "9f", CHAIN, strands=begun, logs=logs, at_ms=at_ms
        )
        return Follower(self.broker, self.bucket, record, lambda _: None, in_strands=True)

    def _slice(self, log: str, after: int, last: int) -> LogSlice:
        if log == OWN_NAME:
            return record_slice(self._changes, log, 0, (after, last), 1 << 20, None)
        number = int(log.partition("/")[0]) << PARTITION_BITS
        return record_slice(self._entries, log, number, (after, last), 1 << 20, None)

    def put(
        self, node: str, *bounds: tuple[str, int, int], cut: dict[str, int] | None = None
    ) -> int:
        """Store a piece; the instant of its cut."""
        number, previous = self._known.get(node, (0, ""))
        self._at_ms += 1
        piece = LogPiece(
            strand_name(CHAIN, node),
            number + 1,
            previous,
            "9f",
            self._at_ms if cut else 0,
            tuple(self._slice(*one) for one in bounds),
            {},
            {},
            cut or {},
        )
        content = bytes(piece.encode())
        assert LogChain(self.bucket, piece.chain).put_new(number + 1, content)
        self._known[node] = number + 1, digest_of(content)
        return self._at_ms

    def tails(self) -> dict[int, int]:
        """Up to where entries of topics are applied, by their numbers, when all is read."""
        all_steps(self.follower)
        return {number: tail for (number, _), tail in self.broker.tails.items()}


@pytest.fixture
def strands(tmp_path: Path) -> Strands:
    return Strands(tmp_path)


def test_what_no_cut_has_waits__and_the_catalogue_comes_first(strands: Strands) -> None:
    strands.put("x", (A, 0, 5))
    assert strands.tails() == {}
    assert strands.follower.waits
    strands.put("y", (B, 0, 4))
    at_ms = strands.put("z", (OWN_NAME, 0, 4), cut={OWN_NAME: 4, A: 3, B: 4})
    assert strands.tails() == {1: 3, 3: 4}
    assert strands.follower.at_ms == at_ms
    numbers = {one.chain.name[-1]: one.number for one in strands.follower.strands.values()}
    assert numbers == {"x": 0, "y": 1, "z": 1}  # of x there is more
    at_ms = strands.put("z", cut={OWN_NAME: 4, A: 5, B: 4})
    assert strands.tails() == {1: 5, 3: 4}
    assert (strands.follower.at_ms, strands.follower.waits) == (at_ms, False)
    # A cut that has nothing new says how late it is.
    at_ms = strands.put("z", cut={OWN_NAME: 4, A: 5, B: 4})
    assert strands.tails() == {1: 5, 3: 4}
    assert strands.follower.at_ms == at_ms


@pytest.mark.parametrize("held_bytes_max", [follower_module.HELD_BYTES_MAX, 0])
def test_a_log_goes_from_strand_to_strand__and_what_two_have_counts_once(
    strands: Strands, monkeypatch: pytest.MonkeyPatch, held_bytes_max: int
) -> None:
    monkeypatch.setattr(follower_module, "HELD_BYTES_MAX", held_bytes_max)
    strands.put("z", (OWN_NAME, 0, 3))
    strands.put("y", (OWN_NAME, 3, 4), (B, 0, 2))
    strands.put("x", (A, 0, 5), (A, 5, 7))  # of one log, twice
    strands.put("y", (A, 5, 12), (B, 2, 9))
    strands.put("z", (B, 9, 10))
    strands.put("x", (A, 12, 20), (B, 7, 10))
    strands.put("y", (A, 18, 25), (B, 10, 11))
    strands.put("x", (A, 25, 30))
    strands.put("x", cut={OWN_NAME: 4, A: 28, B: 11})
    assert strands.tails() == {1: 28, 3: 11}
    strands.put("x", cut={OWN_NAME: 4, A: 30, B: 11})
    assert strands.tails() == {1: 30, 3: 11}
    assert not strands.follower.waits


def test_a_cut_counts_when_all_strands_have_its_entries(strands: Strands) -> None:
    strands.put("z", (OWN_NAME, 0, 4), (A, 0, 5), cut={OWN_NAME: 4, A: 5})
    strands.put("z", (A, 5, 9), cut={OWN_NAME: 4, A: 9, B: 3})
    strands.put("z", (A, 9, 12), cut={OWN_NAME: 4, A: 12, B: 6})
    assert strands.tails() == {1: 5}  # of the other topic nothing is there
    strands.put("y", (B, 0, 3))
    for _ in range(2):
        assert not strands.follower.step(NEVER)  # a strand that nobody has looked for
    assert strands.tails() == {1: 9, 3: 3}
    strands.put("y", (B, 3, 8))
    assert strands.tails() == {1: 12, 3: 6}


def test_a_cut_of_before_takes_nothing_back__though_its_clock_is_ahead(strands: Strands) -> None:
    at_ms = strands.put("z", (OWN_NAME, 0, 4), (A, 0, 5), cut={OWN_NAME: 4, A: 5})
    strands.put("y", cut={OWN_NAME: 4, A: 3})
    strands.put("x", cut={OWN_NAME: 2})
    assert strands.tails() == {1: 5}
    assert strands.follower.logs == {OWN_NAME: 4, A: 5}
    assert strands.follower.at_ms == at_ms


def test_topics_are_deleted_and_made_again(strands: Strands) -> None:
    strands.put("z", (OWN_NAME, 0, 4), (A, 0, 5), (B, 0, 2), cut={OWN_NAME: 4, A: 5, B: 2})
    assert strands.tails() == {1: 5, 3: 2}
    strands.put("x", (A, 5, 8))
    strands.put("z", (OWN_NAME, 4, 7), cut={OWN_NAME: 7, B: 2})
    assert strands.tails() == {1: 5, 3: 2}  # what is left of the topic nobody needs
    assert not strands.follower.waits
    assert strands.follower.logs == {OWN_NAME: 7, B: 2}
    strands.put("y", (A_AGAIN, 0, 3), (B, 2, 4))
    strands.put("z", (OWN_NAME, 7, 9))
    assert strands.follower.step(NEVER)
    assert strands.follower.waits  # it is made behind the last cut
    strands.put("z", cut={OWN_NAME: 9, A_AGAIN: 3, B: 4})
    assert strands.tails() == {1: 5, 3: 4, 8: 3}
    assert not strands.follower.waits


def test_a_gap_is_told_when_nothing_comes__of_topics_that_are_there(strands: Strands) -> None:
    strands.put("z", (OWN_NAME, 0, 4), (A, 0, 5), (B, 0, 2), cut={OWN_NAME: 4, A: 5, B: 2})
    strands.put("y", (A, 8, 9))
    strands.put("z", (B, 2, 4), cut={OWN_NAME: 4, A: 9, B: 4})
    assert strands.tails() == {1: 5, 3: 2}
    assert strands.follower.gap == LogGap(A, 5, 8)
    # The topic is gone in a later cut: what is missing of it is missed by nobody.
    strands.put("z", (OWN_NAME, 4, 7), cut={OWN_NAME: 7, B: 4})
    assert strands.tails() == {1: 5, 3: 4}
    assert strands.follower.gap is None
    assert not strands.follower.waits


def test_who_starts_again_goes_on_where_it_was(strands: Strands) -> None:
    strands.put("x", (A, 0, 5))
    strands.put("z", (OWN_NAME, 0, 4), (B, 0, 2), cut={OWN_NAME: 4, A: 3, B: 2})
    assert strands.tails() == {1: 3, 3: 2}
    before = strands.follower
    begun = {name: (one.number, one.previous) for name, one in before.strands.items()}
    strands.put("y", (A, 5, 9))
    strands.put("z", cut={OWN_NAME: 4, A: 8, B: 2})
    strands.follower = strands.follower_of(begun, before.logs, before.at_ms)
    assert strands.tails() == {1: 8, 3: 2}
    # What was noted earlier does as well: what is applied is passed over.
    strands.follower = strands.follower_of({}, {OWN_NAME: 0})
    assert strands.tails() == {1: 8, 3: 2}


def test_of_many_cuts_that_wait_some_are_kept__the_last_one_with_them(strands: Strands) -> None:
    strands.put("z", (OWN_NAME, 0, 4), cut={OWN_NAME: 4})
    for end in range(1, 31):
        for _ in range(5):
            strands.put("z", cut={OWN_NAME: 4, A: end})
    assert strands.tails() == {}
    assert len(strands.follower._cuts) <= CUTS_MAX
    strands.put("x", (A, 0, 30))
    assert strands.tails() == {1: 30}
    assert strands.follower._cuts == []


def test_strands_are_ended_though_their_archivers_go_on(
    strands: Strands, monkeypatch: pytest.MonkeyPatch
) -> None:
    strands.put("x", (B, 0, 2))
    strands.put("z", (OWN_NAME, 0, 4), (A, 0, 5), cut={OWN_NAME: 4, A: 5, B: 2})
    all_steps(strands.follower)
    real, left = LogChain.put_new, [8, 7, 6]

    def busy(chain: LogChain, number: int, stored: bytes | memoryview) -> bool:
        if left and LogPiece.decode("a test", stored).fence and chain.name.endswith("z"):
            last = left.pop()
            strands.put("z", (A, last - 1, last), cut={OWN_NAME: 4, A: last, B: 2})
        return real(chain, number, stored)

    monkeypatch.setattr(LogChain, "put_new", busy)
    strands.follower.seal("a1", "9f")
    assert {one.fence for one in strands.follower.strands.values()} == {"a1"}
    with pytest.raises(FollowingEndedError, match="a1"):
        all_steps(strands.follower)
    assert strands.broker.tails == {(1, 0): 8, (3, 0): 2}


def test_a_strand_that_is_ended_is_told_when_all_is_applied(strands: Strands) -> None:
    strands.put("z", (OWN_NAME, 0, 4), (A, 0, 5), cut={OWN_NAME: 4, A: 5})
    assert strands.tails() == {1: 5}
    assert strands.follower.strands[strand_name(CHAIN, "z")].seal("a1", "9f")
    strands.put("x", (A, 5, 6))
    strands.follower.look()
    assert strands.follower.step(NEVER)
    with pytest.raises(FollowingEndedError, match="a1"):
        strands.follower.step(NEVER)
    assert strands.follower.waits  # no cut has it


# --- anything -------------------------------------------------------------------------------------


class Brokers:
    """Brokers that take logs over from each other at random, and archive at their own pace."""

    def __init__(self, strands: Strands, random: np.random.Generator) -> None:
        self._strands, self._random = strands, random
        self._owners = {A: "x", B: "y"}
        self._tails = {A: 0, B: 0}
        self._archived = dict[str, dict[str, int]]()
        """By the node: where it goes on in the logs that it has."""
        self._late: list[tuple[str, str, int, int]] = []
        """What former owners were storing when they lost a log."""
        self.cuts: list[dict[str, int]] = []
        strands.put("x", (OWN_NAME, 0, 4))

    def _choice(self, some: Sequence[str]) -> str:
        return str(self._random.choice(some))

    def act(self) -> None:
        log = self._choice([A, B])
        owner = self._owners[log]
        match self._random.integers(6):
            case 0 | 1:
                self._tails[log] = min(40, self._tails[log] + int(self._random.integers(1, 4)))
            case 2 | 3:
                self._archive(owner, log, self._tails[log])
            case 4 if self._late and self._random.random() < 0.5:
                node, log, after, last = self._late.pop()
                self._strands.put(node, (log, after, last))
            case 4:
                self._take_over(log)
            case 5:
                self.cut()

    def _archive(self, node: str, log: str, last: int) -> None:
        at = self._archived.setdefault(node, {}).get(log, 0)
        if at < last:
            self._strands.put(node, (log, at, last))
            self._archived[node][log] = last

    def _take_over(self, log: str) -> None:
        before, after = self._owners[log], self._choice(["x", "y", "z"])
        reached = max(of.get(log, 0) for of in (*self._archived.values(), {}))
        at = self._archived.get(before, {}).get(log, 0)
        if before != after and at < self._tails[log]:
            self._late.append((before, log, at, self._tails[log]))
        self._owners[log] = after
        self._archived.setdefault(after, {})[log] = reached

    def cut(self) -> None:
        self.cuts.append({OWN_NAME: 4, **self._tails})
        self._strands.put(self._choice(["x", "y", "z"]), cut=self.cuts[-1])

    def end(self) -> None:
        for log, owner in self._owners.items():
            self._archive(owner, log, self._tails[log])
        self.cut()


@pytest.mark.parametrize("seed", range(30))
def test_whatever_brokers_do_what_is_applied_is_a_cut(
    strands: Strands, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = np.random.default_rng(seed)
    monkeypatch.setattr(follower_module, "STEP_PIECES", int(random.integers(1, 4)))
    if seed % 3 == 0:
        monkeypatch.setattr(follower_module, "HELD_BYTES_MAX", int(random.integers(1, 4_000)))
    brokers = Brokers(strands, random)
    steps = 0

    def check() -> None:
        found = {1: 0, 3: 0} | {number: at for (number, _), at in strands.broker.tails.items()}
        wanted = [{1: one[A], 3: one[B]} for one in ({A: 0, B: 0}, *brokers.cuts)]
        assert found in wanted
        assert strands.broker.state.revision in (0, 4)

    for _ in range(120):
        brokers.act()
        follower = strands.follower
        match random.integers(8):
            case 0:
                follower.look()
            case 1:
                follower.again()
            case 2:
                begun = {name: (one.number, one.previous) for name, one in follower.strands.items()}
                strands.follower = strands.follower_of(begun, follower.logs, follower.at_ms)
            case _:
                steps += follower.step(NEVER)
        check()
    brokers.end()
    strands.tails()
    check()
    assert {A: strands.follower.logs[A], B: strands.follower.logs[B]} == {
        A: brokers.cuts[-1][A],
        B: brokers.cuts[-1][B],
    }
    assert not strands.follower.waits or brokers._late
    assert steps > 10
