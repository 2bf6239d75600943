"""What brokers of a cluster archive as it comes, and what is restored of it.

Covered: brokers in this process, whose journals are in memory: under load, while slots move and the
broker that takes cuts leaves; a broker that is silent in turns; instants; backups between them;
topics that are deleted.
Not covered: processes that are killed (tests/crash/test_cluster_archive.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.instants import chosen
from dejaqueue.backup.strands import StrandIndex, pieces_of, strands_of
from dejaqueue.broker.backup import cluster_cuts
from dejaqueue.broker.backup.restoring import Restore, RestorePlan, RestoreReport
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.peers import TURN
from dejaqueue.errors import BadRequest, DejaQError, Refused, Unavailable
from dejaqueue.journal.registry import open_store
from dejaqueue.model import Topic
from dejaqueue.setting_groups import BackupSettings
from tests.backups import client_of, reach_ms, started, taken
from tests.cluster.brokers import patiently, payloads, send
from tests.cluster.test_backup import NearCluster
from tests.cluster.test_message_history import NextDoor
from tests.patience import until

CUTS = 15
"""So many of all are restored."""


class Archiving(NearCluster):
    """Brokers that archive to one place.

    Attributes:
        silent: names of brokers that do not answer in turns.
        late_seconds: so much later who begins a turn hears that another one has begun it.
    """

    def __init__(self, where: Path, interval_ms: int = 20) -> None:
        super().__init__()
        self.where = str(where)
        self.backup = BackupSettings(
            url=self.where, archive_interval_ms=interval_ms, interval_ms=86_400_000
        )
        self.silent: set[str] = set()
        self.late_seconds = 0.0

    def listen(self, name: str, broker: Broker) -> str:
        address = super().listen(name, broker)
        broker.peers = _Selective(self)
        return address

    def reach_ms(self) -> int:
        return reach_ms(self.where)

    def leader(self) -> str:
        """Who takes cuts; "" = nobody now."""
        [*found] = [
            name
            for name, broker in self.brokers.items()
            if broker.backups.archiver._catalogue is not None  # type: ignore[attr-defined]
        ]
        return found[0] if len(found) == 1 else ""

    def archived(self) -> int:
        """Return when all that was acknowledged before this is archived; as of when it is."""
        now_ms = next(iter(self.brokers.values())).clock.utc_ms()
        topic = next(iter(self.brokers.values())).topics()[0].name
        self.send_to_owner(topic, ["a mark"])
        until(lambda: self.reach_ms() >= now_ms, "the archive has come so far")
        return self.reach_ms()

    def restored(self, to: Path, instant_ms: int | None = None) -> RestoreReport:
        archive = Archive.open(self.where)
        manifest, follows = chosen(archive, "", instant_ms)
        store = open_store(str(to))
        try:
            plan = RestorePlan(until_ms=instant_ms, follows=follows)
            return Restore(archive, manifest, store).run(plan)
        finally:
            store.close()


class _Selective(NextDoor):
    """The way to other brokers, of which some do not answer in turns."""

    def __init__(self, cluster: Archiving) -> None:
        super().__init__(cluster.brokers)
        self._cluster = cluster

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        if action == TURN and url.split("/")[2].split(":")[0] in self._cluster.silent:
            silence: Future[dict[str, Any]] = Future()
            error = Unavailable("it does not answer")
            threading.Timer(0.5, silence.set_exception, [error]).start()  # as the way there does
            return silence
        answer = super().ask(url, action, body)
        if body.get("step") == "begin" and action == TURN:
            threading.Event().wait(self._cluster.late_seconds)
        return answer


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Archiving]:
    with Archiving(tmp_path / "backups") as made:
        made.start("a")
        made.start("b")
        made.dealt()
        yield made


def made(cluster: Archiving, *names: str, partitions: int = 2) -> None:
    for name in names:
        cluster.brokers["a"].create_topic(Topic(name, partitions=partitions))


def there(broker: Broker, topic: str) -> list[str]:
    return sorted(payloads(broker, topic))


class Load:
    """Threads that do something again and again, whoever serves it."""

    def __init__(self, *works: Callable[[], None]) -> None:
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._again, args=(one,)) for one in works]
        for thread in self._threads:
            thread.start()

    def _again(self, work: Callable[[], None]) -> None:
        while not self._ends.is_set():
            try:
                work()
            except (DejaQError, IndexError, KeyError):
                self._ends.wait(0.01)

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()


def test_what_is_done_is_archived__and_restored_with_what_a_backup_has(
    cluster: Archiving, tmp_path: Path
) -> None:
    made(cluster, *(f"topic-{number}" for number in range(6)))
    for number in range(6):
        cluster.send_to_owner(f"topic-{number}", ["before"])
    until(lambda: cluster.reach_ms() > 0, "the first backup, which the schedule takes")
    made(cluster, "later")
    for number in range(6):
        cluster.send_to_owner(f"topic-{number}", ["after", "wards"])
    cluster.send_to_owner("later", ["x"])
    reach_ms = cluster.archived()
    report = cluster.restored(tmp_path / "new")
    assert report.cut_ms >= reach_ms
    broker = started(tmp_path / "new")
    marks = ["a mark"]
    assert there(broker, "later") in (["x"], [*marks, "x"])
    for number in range(6):
        found = [one for one in there(broker, f"topic-{number}") if one not in marks]
        assert found == ["after", "before", "wards"]
    broker.stop()


def test_a_message_that_is_passed_on_under_load_is_somewhere__whoever_serves_it(
    cluster: Archiving, tmp_path: Path
) -> None:
    made(cluster, "first", "second", partitions=4)
    for topic in ("first", "second"):
        cluster.send_to_owner(topic, ["0"])
    until(lambda: cluster.reach_ms() > 0, "the first backup")
    sent, numbers = list[tuple[int, str]](), iter(range(1, 1_000_000))

    def enter() -> None:
        text = f"{next(numbers)}"
        broker = cluster.owner("first")
        send(broker, "first", [text], 0)
        sent.append((broker.clock.utc_ms(), text))

    def pass_on() -> None:
        with (
            client_of(cluster.owner("first")) as source,
            source.consume("first", idle_ms=50, prefetch=20) as messages,
        ):
            for message in messages:
                send(cluster.owner("second"), "second", [message.payload.decode()])
                message.ack(wait=True)

    load = Load(enter, pass_on)
    until(lambda: len(sent) > 50, "there is load")
    leader = cluster.leader() or "a"
    cluster.start("c")
    until(lambda: len(sent) > 100, "load goes on")
    cluster.stop(leader)
    until(lambda: len(sent) > 150, "load goes on")
    reach_ms = cluster.archived()
    load.end()
    report = cluster.restored(tmp_path / "new")
    assert report.cut_ms >= reach_ms
    broker = started(tmp_path / "new")
    left, right = there(broker, "first"), there(broker, "second")
    broker.stop()
    wanted = {text for at_ms, text in sent if at_ms < report.cut_ms}
    lost = wanted - {*left, *right}
    assert not lost, f"{len(lost)} of {len(wanted)} are lost"
    assert len(wanted) > 100
    assert len(left) == len(set(left))


def test_each_cut_has_what_is_passed_on_in_one_place_or_the_other(
    cluster: Archiving, tmp_path: Path
) -> None:
    """While one broker has begun a turn and the other has not, much could be passed on between
    them: an ack that is in the cut, of what was sent on behind it."""
    names = [f"topic-{number}" for number in range(6)]
    made(cluster, *names)
    for name in names:
        cluster.send_to_owner(name, ["0"])
    until(lambda: cluster.reach_ms() > 0, "the first backup")
    until(lambda: cluster.leader() != "", "somebody takes cuts")
    leader, cluster.late_seconds = cluster.leader(), 0.01
    first = next(one for one in names if cluster.owners(one) == [leader])
    second = next(one for one in names if cluster.owners(one) != [leader])
    source, target = cluster.owner(first), cluster.owner(second)
    sent, passed, numbers = list[tuple[int, str]](), list[str](), iter(range(1, 1_000_000))

    def enter() -> None:
        text = f"{next(numbers)}"
        send(source, first, [text], 0)
        sent.append((source.clock.utc_ms(), text))

    def pass_on() -> None:
        with (
            client_of(source) as client,
            client.consume(first, idle_ms=50, prefetch=20) as messages,
        ):
            for message in messages:
                send(target, second, [message.payload.decode()])
                message.ack(wait=True)
                passed.append(message.payload.decode())

    load = Load(enter, pass_on)
    until(lambda: len(passed) > 200, "there is load")
    load.end()
    cluster.late_seconds = 0.0
    cluster.archived()
    archive = Archive.open(cluster.where)
    manifest = archive.newest()
    assert manifest is not None
    index = StrandIndex(manifest)
    for _, piece in pieces_of(strands_of(archive.bucket, manifest.chain)):
        index.add(piece)
    instants = sorted({one.at_ms for one in index._cuts if one.at_ms > sent[0][0]})
    for place, instant_ms in enumerate(instants[:: max(1, len(instants) // CUTS)]):
        report = cluster.restored(tmp_path / f"{place}", instant_ms)
        assert report.cut_ms == instant_ms
        broker = started(tmp_path / f"{place}")
        left = {*there(broker, first), *there(broker, second)}
        broker.stop()
        lost = {text for at_ms, text in sent if at_ms < instant_ms} - left
        assert not lost, f"cut {place}: {len(lost)} are in neither topic"
    assert len(instants) > 10


def test_a_broker_that_is_silent_in_turns_holds_others_up_once(
    cluster: Archiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(cluster, "first", "second")
    cluster.send_to_owner("first", ["0"])
    cluster.send_to_owner("second", ["0"])
    until(lambda: cluster.reach_ms() > 0, "the first backup")
    cluster.archived()
    until(lambda: cluster.leader() != "", "somebody takes cuts")
    leader = cluster.leader()
    [other] = {"a", "b"} - {leader}
    begun = list[str]()
    begin = cluster.brokers[leader].turn_hold.begin

    def counted(turn: str) -> dict[str, int]:
        begun.append(turn)
        return begin(turn)

    cluster.silent.add(other)
    monkeypatch.setattr(cluster.brokers[leader].turn_hold, "begin", counted)
    cuts = cluster.brokers[leader].backups.archiver._cuts  # type: ignore[attr-defined]
    until(lambda: cuts._failures >= 3, "turns are given up")
    assert len(begun) <= 1, "answers were held up more than once"
    cluster.silent.clear()
    cluster.archived()
    assert cuts._failures == 0


def test_an_instant_is_the_last_cut_before_it(cluster: Archiving, tmp_path: Path) -> None:
    made(cluster, "first", "second")
    for topic in ("first", "second"):
        cluster.send_to_owner(topic, ["0"])
    until(lambda: cluster.reach_ms() > 0, "the first backup")
    cluster.send_to_owner("first", ["1"])
    middle_ms = cluster.archived()
    threading.Event().wait(1.1)  # a turn has not more than this
    cluster.send_to_owner("second", ["2"])
    end_ms = cluster.archived()
    report = cluster.restored(tmp_path / "new", middle_ms + 1_000)
    assert middle_ms <= report.cut_ms <= middle_ms + 1_000
    broker = started(tmp_path / "new")
    assert [one for one in there(broker, "first") if one != "a mark"] == ["0", "1"]
    assert there(broker, "second") == ["0"]
    broker.stop()
    with pytest.raises(BadRequest, match="up to"):
        cluster.restored(tmp_path / "other", end_ms + 60_000)


def test_between_two_backups_an_instant_is_a_cut__as_long_as_pieces_are_there(
    cluster: Archiving, tmp_path: Path
) -> None:
    made(cluster, "first", "second")
    for topic in ("first", "second"):
        cluster.send_to_owner(topic, ["0"])
    until(lambda: cluster.reach_ms() > 0, "the first backup")
    cluster.send_to_owner("first", ["1"])
    middle_ms = cluster.archived()
    made(cluster, "third")
    for topic in ("second", "third"):
        cluster.send_to_owner(topic, ["2"])
    end_ms = cluster.archived()
    taken(cluster.brokers["a"], cluster.where)
    cluster.send_to_owner("second", ["3"])
    cluster.archived()
    for place, instant_ms, wanted in (
        ("middle", middle_ms, (["0", "1"], ["0"], None)),
        ("end", end_ms, (["0", "1"], ["0", "2"], ["2"])),
    ):
        report = cluster.restored(tmp_path / place, instant_ms)
        assert report.cut_ms == instant_ms
        broker = started(tmp_path / place)
        for topic, payloads_wanted in zip(("first", "second", "third"), wanted, strict=True):
            if payloads_wanted is not None:
                found = [one for one in there(broker, topic) if one != "a mark"]
                assert found == payloads_wanted, (place, topic)
        assert len(broker.topics()) == 3 - wanted.count(None)
        broker.stop()
    for number in range(2):
        cluster.send_to_owner("first", [f"{4 + number}"])
        cluster.archived()
        taken(cluster.brokers["b"], cluster.where)
    until(lambda: not reaches(cluster, middle_ms), "pieces go that two backups have")
    with pytest.raises(Refused, match=r"restore one of the two, as of 20\S+ or 20"):
        cluster.restored(tmp_path / "late", middle_ms)


def reaches(cluster: Archiving, instant_ms: int) -> bool:
    try:
        return chosen(Archive.open(cluster.where), "", instant_ms)[1]
    except Refused:
        return False


def test_backups_go_on_with_the_chain__and_pieces_that_they_have_go(cluster: Archiving) -> None:
    made(cluster, *(f"topic-{number}" for number in range(4)))
    for number in range(4):
        cluster.send_to_owner(f"topic-{number}", ["before"])
    until(lambda: cluster.reach_ms() > 0, "the first backup")
    first = Archive.open(cluster.where).newest()
    assert first is not None
    assert first.in_strands
    assert first.clocks == 2
    chains = {first.chain}
    for name in ("b", "a", "b"):
        for number in range(4):
            cluster.send_to_owner(f"topic-{number}", ["more"])
        cluster.archived()
        found = taken(cluster.brokers[name], cluster.where)
        assert found["state"] == "done", found
        manifest = Archive.open(cluster.where).newest()
        assert manifest is not None
        chains.add(manifest.chain)
    assert chains == {first.chain}
    archive = Archive.open(cluster.where)
    firsts = [
        min(int(one.name.rpartition("/")[2]) for one in archive.bucket.objects(f"chains/{name}/"))
        for name in (f"{first.chain}/{node}" for node in ("a", "b"))
    ]
    assert all(number > 1 for number in firsts), firsts
    cluster.archived()
    newest = archive.newest()
    assert newest is not None
    assert archive.chain_damage(newest)[0] == []


def test_a_broker_that_did_not_hear_of_a_chain_hears_of_it_in_a_turn(cluster: Archiving) -> None:
    made(cluster, "first", "second")
    for topic in ("first", "second"):
        cluster.send_to_owner(topic, ["0"])
    until(lambda: cluster.reach_ms() > 0, "the first backup")
    cluster.archived()
    for broker in cluster.brokers.values():
        broker.backups.archiver._break("a test")
    patiently(lambda: taken(cluster.brokers["a"], cluster.where))
    hear = cluster.brokers["b"].backups.parts.hear
    assert hear is not None
    cluster.archived()
    assert [one.backups.archiver.trouble() for one in cluster.brokers.values()] == ["", ""]


def test_a_broker_whose_membership_ends_says_nothing_more_of_what_it_had(
    cluster: Archiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journals may hang, and be open for long: by then others have appended to them."""
    made(cluster, "first", "second")
    for topic in ("first", "second"):
        cluster.send_to_owner(topic, ["0"])
    until(lambda: cluster.reach_ms() > 0, "the first backup")
    cluster.archived()
    name = next(name for name, one in cluster.brokers.items() if one.turn_hold.published())
    node, broker = cluster.nodes[name], cluster.brokers[name]
    monkeypatch.setattr(node._hand_overs, "drop", lambda *_: None)  # it hangs
    before = broker.turn_hold.published()
    node._fence()
    assert all(one.has_ended for one in before.values())
    monkeypatch.undo()
    served = [one.served_as for one in broker.runtimes()]
    node._hand_overs.drop(broker, served)
    cluster.archived()


def test_a_topic_that_is_deleted_holds_nothing_up(cluster: Archiving, tmp_path: Path) -> None:
    made(cluster, "first", "gone")
    for topic in ("first", "gone"):
        cluster.send_to_owner(topic, ["0"] * 20)
    until(lambda: cluster.reach_ms() > 0, "the first backup")
    cluster.send_to_owner("gone", ["1"] * 100)
    cluster.brokers["a"].delete_topic("gone")
    cluster.send_to_owner("first", ["1"])
    cluster.archived()
    cluster.restored(tmp_path / "new")
    broker = started(tmp_path / "new")
    assert [one.name for one in broker.topics()] == ["first"]
    broker.stop()


def test_the_pause_of_a_turn_is_less_than_answers_are_kept() -> None:
    from dejaqueue.broker.shard.turn_hold import HOLD_SECONDS_MAX

    assert cluster_cuts.PATIENCE_SECONDS < HOLD_SECONDS_MAX
