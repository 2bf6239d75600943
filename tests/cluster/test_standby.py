"""A standby that follows the archive of a cluster: one broker that has what all brokers had, and
takes their place.

Covered: brokers in this process, whose journals are in memory, and a standby with a directory:
ids, topics that are deleted and made again, brokers that leave and come again, backups that
replace the first, an archive that is away; promotion under load, and the end of the brokers of the
cluster, of those that begin to archive later, too.
Not covered: processes that are killed (tests/crash/test_cluster_standby.py), cuts and strands one
by one (tests/unit/broker/standby/test_follower.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.standby import standby as standby_module
from dejaqueue.connections.bucket import DirectoryBucket
from dejaqueue.errors import NotActive, TopicUnknown, TryLater, Unavailable
from dejaqueue.model import Topic
from dejaqueue.setting_groups import BackupSettings, StandbySettings
from tests.backups import client_of, settings_of, taken
from tests.cluster.brokers import send
from tests.cluster.test_archive import Archiving, Load, made, there
from tests.patience import until

NAMES = [f"topic-{number}" for number in range(6)]
MARKS = {"a mark"}
"""What `archived` sends to the first of all topics."""


class Sites(Archiving):
    """A cluster, and standbys of it, that are stopped in the end."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "backups")
        self.root = root
        self.standbys: list[Broker] = []

    def standby(self, name: str = "standby", **settings: Any) -> Broker:
        standby = StandbySettings(url=self.where, poll_ms=10)
        broker = Broker(
            settings_of(self.root / name).model_copy(update={"standby": standby, **settings})
        )
        broker.start()
        self.standbys.append(broker)
        return broker

    def followed(self, standby: Broker) -> None:
        """Return when the standby has all that was acknowledged before this."""
        reach_ms = self.archived()
        until(lambda: as_of_ms(standby) >= reach_ms, "it has followed")

    def filled(self) -> None:
        """Six topics, and the first backup."""
        made(self, *NAMES)
        for name in NAMES:
            self.send_to_owner(name, ["before"])
        until(lambda: self.reach_ms() > 0, "the first backup, which the schedule takes")


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    monkeypatch.setattr(standby_module, "AGAIN_MS", 20)
    monkeypatch.setattr(standby_module, "STRAND_LOOK_US", 50_000)
    with Sites(tmp_path) as sites:
        sites.start("a")
        sites.start("b")
        sites.dealt()
        yield sites
        for standby in sites.standbys:
            standby.stop()


def as_of_ms(standby: Broker) -> int:
    follower = standby.standby.follower
    return 0 if follower is None else follower.at_ms


def rows(broker: Broker, topic: str) -> list[tuple[int, bytes]]:
    """Ids and payloads, in their order."""
    page = client_of(broker).peek(topic, limit=10_000)
    return sorted(
        zip(page.column("id").to_pylist(), page.column("payload").to_pylist(), strict=True)
    )


def test_a_standby_has_what_all_brokers_have__with_their_ids(sites: Sites) -> None:
    sites.filled()
    standby = sites.standby()
    for name in NAMES:
        sites.send_to_owner(name, ["1", "2"])
    made(sites, "later", partitions=3)
    sites.send_to_owner("later", ["x", "y"])
    client = client_of(sites.owner(NAMES[0]))
    with client.consume(NAMES[0], idle_ms=200, prefetch=5) as messages:
        assert list(messages) == []  # all are due later
    sites.followed(standby)
    for name in (*NAMES, "later"):
        assert rows(standby, name) == rows(sites.owner(name), name), name
        number = sites.brokers["a"].catalogue_state().rows[name].number
        assert standby.catalogue_state().rows[name].number == number
    with pytest.raises(NotActive, match="this is a standby of .*backups.*`dejaq promote`"):
        send(standby, NAMES[0], ["x"])
    assert standby.call("standby")["state"] == "following"
    assert standby.call("stats")["topics"]


def test_topics_are_deleted_and_made_again_while_it_follows(sites: Sites) -> None:
    sites.filled()
    standby = sites.standby()
    broker = sites.brokers["a"]
    for life in range(3):
        broker.create_topic(Topic("b", partitions=2))
        sites.send_to_owner("b", [f"b{life}"])
        if life == 1:
            sites.followed(standby)
            assert set(there(standby, "b")) - MARKS == {"b1"}
        if life < 2:
            broker.delete_topic("b")
    broker.delete_topic(NAMES[5])  # one that the backup has
    broker.alter_topic(NAMES[1], {"partitions": 4})
    for _ in range(8):
        sites.send_to_owner(NAMES[1], ["more"])
    sites.followed(standby)
    assert rows(standby, "b") == rows(sites.owner("b"), "b")
    assert rows(standby, NAMES[1]) == rows(sites.owner(NAMES[1]), NAMES[1])
    assert standby.topic(NAMES[1]).partitions == 4
    with pytest.raises(TopicUnknown):
        there(standby, NAMES[5])
    done = standby.call("promote")
    assert done["state"] == "active"
    assert set(there(standby, "b")) - MARKS == {"b2"}
    standby.create_topic(Topic(NAMES[5]))
    send(standby, NAMES[5], ["of this site"])
    assert there(standby, NAMES[5]) == ["of this site"]


def test_brokers_leave__and_begin_another_life(sites: Sites) -> None:
    sites.filled()
    standby = sites.standby()
    sites.start("c")
    for name in ("a", "b", "c"):
        for topic in NAMES:
            sites.send_to_owner(topic, [f"before {name}"])
        sites.stop(name)
        for topic in NAMES:
            sites.send_to_owner(topic, [f"without {name}"])
        sites.start(name)
        for topic in NAMES:
            sites.send_to_owner(topic, [f"with {name}"])
    sites.dealt()
    sites.followed(standby)
    for name in NAMES:
        assert rows(standby, name) == rows(sites.owner(name), name), name
    follower = standby.standby.follower
    assert follower is not None
    assert len(follower.strands) == 3
    standby.stop()
    for name in NAMES:
        sites.send_to_owner(name, ["meanwhile"])
    again = sites.standby()
    sites.followed(again)
    for name in NAMES:
        assert rows(again, name) == rows(sites.owner(name), name), name


def test_full_backups_replace_the_one_that_it_began_with(sites: Sites) -> None:
    sites.filled()
    standby = sites.standby()
    first = Archive.open(sites.where).newest()
    assert first is not None
    for name in ("a", "b", "a"):
        for topic in NAMES:
            sites.send_to_owner(topic, [f"before a backup of {name}"])
        found = taken(sites.brokers[name], sites.where, full=True)
        assert found["state"] == "done", found
        sites.followed(standby)
    Archive.open(sites.where).forget([first.id])
    for topic in NAMES:
        sites.send_to_owner(topic, ["later"])
    sites.followed(standby)
    for name in NAMES:
        assert rows(standby, name) == rows(sites.owner(name), name), name
    assert standby.standby.trouble == ""


def test_strands_of_another_chain_are_followed(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A backup that finds a broker which archives nothing begins it."""
    monkeypatch.setattr(standby_module, "CHAIN_LOOK_US", 50_000)
    sites.filled()
    standby = sites.standby()
    for name in NAMES:
        sites.send_to_owner(name, ["followed"])
    sites.followed(standby)
    before = Archive.open(sites.where).newest()
    assert before is not None
    sites.brokers["a"].backups.archiver._break("a test")
    for name in NAMES:
        sites.send_to_owner(name, ["in between"])
    made(sites, "later")
    sites.send_to_owner("later", ["x"])
    assert taken(sites.brokers["b"], sites.where)["state"] == "done"
    after = Archive.open(sites.where).newest()
    assert after is not None
    assert after.chain != before.chain
    for name in NAMES:
        sites.send_to_owner(name, ["behind it"])
    sites.followed(standby)
    for name in (*NAMES, "later"):
        assert rows(standby, name) == rows(sites.owner(name), name), name
    assert "begins anew with another backup" in caplog.text
    done = standby.call("promote")
    assert done["state"] == "active"
    for name in NAMES:
        assert {"followed", "in between", "behind it"} <= set(there(standby, name))


def test_what_no_cut_has_is_not_shown__and_after_a_while_that_is_told(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_module, "STALL_US", 200_000)
    sites.filled()
    standby = sites.standby()
    sites.followed(standby)
    until(lambda: sites.leader() != "", "somebody takes cuts")
    sites.silent |= {"a", "b"} - {sites.leader()}
    sites.send_to_owner(NAMES[1], ["waits"])
    until(lambda: "no cut of all brokers has" in standby.standby.trouble, "it is told")
    assert there(standby, NAMES[1]) == ["before"]
    sites.silent.clear()
    sites.followed(standby)
    assert there(standby, NAMES[1]) == ["before", "waits"]
    until(lambda: not standby.standby.trouble, "it goes on")


def test_an_archive_that_is_away_is_waited_for(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.filled()
    standby = sites.standby()
    sites.followed(standby)

    def away(*_: object) -> None:
        raise Unavailable("away", 100)

    with monkeypatch.context() as patch:
        for call in ("get", "put_new", "objects"):
            patch.setattr(DirectoryBucket, call, away)
        for name in NAMES:
            sites.send_to_owner(name, ["meanwhile"])
        until(lambda: standby.standby.trouble == "away", "it is told")
        assert there(standby, NAMES[1]) == ["before"]  # what is there can be read
        with pytest.raises(Unavailable):
            standby.call("promote")
    sites.followed(standby)
    until(lambda: not standby.standby.trouble, "it goes on")
    for name in NAMES:
        assert rows(standby, name) == rows(sites.owner(name), name), name


def refused(broker: Broker, topic: str) -> bool:
    """Whether a broker says that it was replaced, asked for something that it serves, or did."""
    try:
        send(broker, topic, ["to the old cluster"])
    except NotActive as refusal:
        return "this broker was replaced" in str(refusal)
    except TryLater:
        return False
    return False


def test_a_promoted_standby_takes_the_place_of_all_brokers(sites: Sites) -> None:
    """Of those, too, that begin to archive when the fence is there."""
    sites.filled()
    standby = sites.standby()
    for name in NAMES:
        sites.send_to_owner(name, ["1"])
    sites.archived()
    done = standby.call("promote")
    assert done["state"] == "active"
    assert done["took_ms"] < 60_000
    for name in NAMES:
        assert {"1", "before"} <= set(there(standby, name)), name
        send(standby, name, ["2"])
    # Each broker is told when it next archives something; it takes what is sent until then.
    for name in NAMES:
        owner = sites.owner(name)
        until(lambda owner=owner, name=name: refused(owner, name), "it meets the fence")  # type: ignore[misc]
    for broker in sites.brokers.values():
        until(lambda broker=broker: broker.site.refusal() is not None, "all have")  # type: ignore[misc]
        with pytest.raises(NotActive, match=r"was replaced: standby \w+ .* was promoted at 2"):
            there(broker, NAMES[0])
    with pytest.raises(NotActive, match="was replaced"):
        sites.start("c")
    for name in list(sites.brokers):
        sites.stop(name)
    sites.backup = BackupSettings()  # it is noted among the journals: no archive has to be read
    with pytest.raises(NotActive, match="was replaced"):
        sites.start("a")
    for name in NAMES:
        assert "to the old cluster" not in there(standby, name)
    standby.stop()
    again = sites.standby()  # the same command: it stays active
    for name in NAMES:
        assert {"1", "2"} <= set(there(again, name))


def test_promoted_under_load_a_message_that_is_passed_on_is_somewhere(sites: Sites) -> None:
    made(sites, "first", "second", partitions=4)
    for topic in ("first", "second"):
        sites.send_to_owner(topic, ["0"])
    until(lambda: sites.reach_ms() > 0, "the first backup")
    standby = sites.standby()
    sent, numbers = list[tuple[int, str]](), iter(range(1, 1_000_000))

    def enter() -> None:
        text = f"{next(numbers)}"
        broker = sites.owner("first")
        send(broker, "first", [text], 0)
        sent.append((broker.clock.utc_ms(), text))

    def pass_on() -> None:
        with (
            client_of(sites.owner("first")) as source,
            source.consume("first", idle_ms=50, prefetch=20) as messages,
        ):
            for message in messages:
                send(sites.owner("second"), "second", [message.payload.decode()])
                message.ack(wait=True)

    load = Load(enter, pass_on)
    try:
        until(lambda: len(sent) > 100, "there is load")
        sites.followed(standby)
        until(lambda: len(sent) > 200, "load goes on")
        done = standby.call("promote")
    finally:
        load.end()
    left, right = there(standby, "first"), there(standby, "second")
    wanted = {text for at_ms, text in sent if at_ms < done["as_of_ms"]}
    lost = wanted - {*left, *right}
    assert not lost, f"{len(lost)} of {len(wanted)} are lost"
    assert len(wanted) > 50
    assert len(left) == len(set(left))
    assert len(right) == len(set(right))
