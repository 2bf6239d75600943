"""Covers: a chain that ends at any place, and any instant within it: each transaction is whole or
not there, what was acknowledged before is there, and nothing that was begun later.

Real transactions of several clients over two to four partitions, in a broker of real threads; the
order in which its logs publish is noted, and chains are made of it: with a turn behind each append,
so that every order in which a home and those that it tells can be parted is one of the cuts, and
with turns of several appends in pieces by log, as the archiver makes them. Faults are planted, and
are found.

Not covered: the archiver's own turns (test_archiver.py); kills (tests/integration/test_archive.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.log_chain import LogChain
from dejaqueue.backup.log_pieces import LogPiece, digest_of
from dejaqueue.broker.backup import schedule
from dejaqueue.broker.backup.archived_decisions import ArchivedDecisions
from dejaqueue.broker.backup.restoring import Restore, RestorePlan
from dejaqueue.broker.broker import Broker
from dejaqueue.engine.table import STAGED
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.segments.log import ShardLog
from dejaqueue.journal.segments.log_turn import LogSlice, read_slice
from dejaqueue.setting_groups import BackupSettings
from dejaqueue.settings import BrokerSettings
from tests.backups import client_of, newest, settings_of, state_of, taken

FAR = 3_600
OUT = [f"out{number}" for number in range(4)]
"""Topics of one partition each: who sends says to which."""
CLIENTS = 2
ROUNDS = 2
SEEDS = range(1, 9 if os.environ.get("DEJAQ_RELIABILITY") == "all" else 2)
Place = tuple[str, int]
"""Topic and id of a message."""


@dataclass
class Work:
    """What a client did at once: it is seen as a whole, or not at all.

    Attributes:
        began_ms, acked_ms: when it was begun, and acknowledged, UTC.
        acked: how many appends had been published when it was acknowledged.
        outputs, inputs: messages that it sent, and that it acked.
        counts: it was committed; False = it never was.
    """

    began_ms: int
    acked_ms: int = 0
    acked: int = 0
    outputs: list[Place] = field(default_factory=list)
    inputs: list[Place] = field(default_factory=list)
    counts: bool = True


class Source:
    """A broker that worked, a backup from before, and all that its logs published since, in order.

    Attributes:
        appends: what was published, each of one log, and when.
        works: what clients did meanwhile.
        url: where the backup is; chains are made there.
    """

    def __init__(self, root: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.appends: list[tuple[int, LogSlice]] = []
        self.works: list[Work] = []
        self.url = root / "backups"
        self._published: list[tuple[int, ShardLog, int, int]] = []
        self._guard = threading.Lock()
        patch.setattr(schedule, "FIRST_MS", 3_600_000)
        patch.setattr(ShardLog, "_publish", self._noting(ShardLog._publish))
        backup = BackupSettings(
            url=str(self.url), interval_ms=86_400_000, archive_interval_ms=60_000
        )
        settings: BrokerSettings = settings_of("memory:").model_copy(update={"backup": backup})
        self.broker = Broker(settings)
        self.broker.start()
        try:
            self._work(seed)
            self._read()
        finally:
            self.broker.stop()
        self._bucket = Archive.open(str(self.url)).bucket
        self._bucket.delete([one.name for one in self._bucket.objects("chains/")])

    def _noting(self, publish: object) -> object:
        def noting(log: ShardLog, *given: object) -> None:
            with self._guard:
                before = log.tail
                publish(log, *given)  # type: ignore[operator]
                now_ms = self.broker.clock.utc_ms()
                self._published.append((now_ms, log, before, log.tail))

        return noting

    # --- what is done -------------------------------------------------------------------------

    def _work(self, seed: int) -> None:
        client, random = client_of(self.broker), Random(seed)
        client.create_topic("in")
        for topic in OUT:
            client.create_topic(topic)
        sent = client.send_batch("in", [{"payload": b"%d" % one} for one in range(30)]).ids
        self.inputs = {("in", one) for one in sent.tolist()}
        assert taken(self.broker, self.url)["state"] == "done"
        self.manifest = newest(self.url)
        self._published.clear()
        consumer = client.consume("in", prefetch=30, auto_extend=False, lease_ms=600_000)
        got = [next(consumer) for _ in range(CLIENTS * ROUNDS)]
        threads = [
            threading.Thread(
                target=self._client, args=(Random(random.random()), got[start::CLIENTS])
            )
            for start in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        consumer.close()
        assert len(self.works) == 2 * CLIENTS * ROUNDS

    def _client(self, random: Random, inputs: Sequence[object]) -> None:
        client = client_of(self.broker)
        for got in inputs:
            work = Work(self.broker.clock.utc_ms())
            topic = random.choice(OUT)
            work.outputs.append((topic, client.send(topic, b"x", delay=FAR)))
            self._done(work)
            work = Work(self.broker.clock.utc_ms(), counts=random.random() < 0.8)
            transaction = client.transaction()
            for topic in random.sample(OUT, random.randint(2, len(OUT))):
                for _ in range(random.randint(1, 2)):
                    work.outputs.append((topic, transaction.send(topic, b"y", delay=FAR)))
            if random.random() < 0.5:
                transaction.ack(got)  # type: ignore[arg-type]
                work.inputs.append(("in", got.id))  # type: ignore[attr-defined]
            if work.counts:
                transaction.commit()
            else:
                transaction.abort()
            self._done(work)

    def _done(self, work: Work) -> None:
        with self._guard:
            work.acked = len(self._published)
            work.acked_ms = self.broker.clock.utc_ms()
            self.works.append(work)

    def _read(self) -> None:
        names = {log: name for name, log in self.broker.store.open_logs().items()}  # type: ignore[attr-defined]
        for now_ms, log, before, tail in self._published:
            one = read_slice(names[log], log, before, tail, 1 << 30)
            assert one.last == tail, "an append lies in one segment"
            self.appends.append((now_ms, one._replace(content=memoryview(bytes(one.content)))))

    # --- chains of it -------------------------------------------------------------------------

    def chain(self, ends: Sequence[int], planted: int = 0) -> tuple[LogChain, list[int]]:
        """A chain of turns.

        Args:
            ends: how many appends were published when each turn began.
            planted: pieces within a turn say this instant, too, which is a fault; 0 = they do not.

        Returns:
            It, and of each of its pieces how many appends a restore up to there has.
        """
        chain = LogChain(self._bucket, self.manifest.chain)
        chain.delete_all()
        numbers, previous, reached = count(1), "", dict(self.manifest.logs)
        wholes: list[int] = []
        for start, end in pairwise([0, *ends]):
            logs: dict[str, list[LogSlice]] = {}
            for _, one in self.appends[start:end]:
                logs.setdefault(one.log, []).append(one)
            for name in sorted(logs):
                is_last = name == max(logs)
                reached = reached | {name: logs[name][-1].last}
                at_ms = self.turn_ms(end) if is_last else planted
                piece = LogPiece(
                    chain.name,
                    next(numbers),
                    previous,
                    self.manifest.store,
                    at_ms,
                    tuple(logs[name]),
                    reached,
                )
                stored = piece.encode()
                assert chain.put_new(piece.number, stored)
                previous = digest_of(stored)
                wholes.append(end if is_last else start)
        return chain, wholes

    def turn_ms(self, end: int) -> int:
        """What a turn says that begins when so many appends were published."""
        return self.appends[min(end, len(self.appends) - 1)][0] - 1

    def restored(self, until_ms: int | None = None) -> MemoryStore:
        store = MemoryStore()
        plan = RestorePlan(until_ms=until_ms, follows=True)
        Restore(Archive.open(str(self.url)), self.manifest, store).run(plan)
        return store


def seen(store: MemoryStore) -> set[Place]:
    """The messages that count in journals that were restored; closes them."""
    found: set[Place] = set()
    for topic in {"in", *OUT} & {*store.made()}:
        journal = store.open(topic, 0, only_made=True)
        engine = state_of(journal)
        for sequences in engine.live_sequences():
            counted = sequences[engine.states(sequences) != STAGED]
            found |= {(topic, one) for one in counted.tolist()}
        journal.close()
    store.close()
    return found


def check(source: Source, until_ms: int | None = None, appends: int = 0) -> None:
    """Restore, and check that each work is whole or not there.

    Args:
        until_ms: as of this instant: what was acknowledged by then is there, and nothing later.
        appends: without one, so many were published: what was acknowledged by then is there.
    """
    store = source.restored(until_ms)
    found, acked = seen(store), set()
    for work in source.works:
        outputs = {one in found for one in work.outputs}
        inputs = {one in found for one in work.inputs}
        assert len(outputs) == 1, f"in part: {work}"
        (has_outputs,) = outputs
        assert inputs <= {not has_outputs}, f"acked in part: {work}"
        if until_ms is None:
            is_there, is_later = work.acked <= appends, False
        else:
            is_there, is_later = work.acked_ms <= until_ms, work.began_ms > until_ms
        if is_later or not work.counts:
            assert not has_outputs, f"never was: {work}"
        elif is_there:
            assert has_outputs, f"is lost: {work}"
        acked |= set(work.inputs) if has_outputs else set()
    assert source.inputs - acked <= found, "an input that nobody acked is gone"


def check_ends(source: Source, chain: LogChain, wholes: Sequence[int]) -> None:
    """The end of a chain is lost, at each place, from the last one on."""
    for number in range(len(wholes), -1, -1):
        check(source, appends=wholes[number - 1] if number else 0)
        chain.delete(range(number, number + 1))


def turns(source: Source, seed: int) -> list[int]:
    """Turns of one to eight appends."""
    random, ends = Random(seed), [0]
    while ends[-1] < len(source.appends):
        ends.append(min(ends[-1] + random.randint(1, 8), len(source.appends)))
    return ends[1:]


@pytest.fixture(scope="module", params=SEEDS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    with pytest.MonkeyPatch.context() as patch:
        return Source(tmp_path_factory.mktemp("cuts"), request.param, patch)


def test_a_chain_that_ends_behind_any_append_has_each_transaction_whole__or_not_at_all(
    source: Source,
) -> None:
    check_ends(source, *source.chain(range(1, len(source.appends) + 1)))


def test_a_chain_that_ends_behind_any_piece_is_restored_up_to_the_last_turn_that_is_whole(
    source: Source,
) -> None:
    check_ends(source, *source.chain(turns(source, seed=1)))


def test_any_instant_has_what_was_acknowledged_by_then__and_nothing_that_was_begun_later(
    source: Source,
) -> None:
    ends = turns(source, seed=2)
    source.chain(ends)
    first_ms, last_ms = source.turn_ms(0), source.turn_ms(ends[-1])
    instants = np.unique([ms for ms, _ in source.appends])
    for instant in instants[(instants > first_ms) & (instants <= last_ms)].tolist():
        check(source, instant)


# --- planted faults are found ---------------------------------------------------------------------


def test_a_restore_that_does_not_ask_homes_is_found(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ArchivedDecisions, "settle", lambda *_: 0)
    with pytest.raises(AssertionError, match="in part"):
        check_ends(source, *source.chain(range(1, len(source.appends) + 1)))


def test_a_restore_that_stops_within_a_turn_is_found(source: Source) -> None:
    with pytest.raises(AssertionError, match="in part|is lost"):
        for seed in range(5):
            check_ends(source, *source.chain(turns(source, seed), planted=1))
