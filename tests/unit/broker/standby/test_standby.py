"""Covers: a broker that follows the archive of another one in this process: what it shows, what it
refuses, its promotion, the end of the one that is followed; kills in the middle of a promotion; two
that are promoted at once; archives that are away, or go on elsewhere.

Not covered: processes that are killed or paused, S3, load (tests/crash/test_standby_kill.py).
"""

from __future__ import annotations

import base64
import io
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dejaqueue.backup import fence as fence_module
from dejaqueue.backup.archive import Archive
from dejaqueue.backup.fence import read_fence
from dejaqueue.backup.log_chain import LogChain
from dejaqueue.broker.backup import archiver, schedule
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.standby import filling
from dejaqueue.broker.standby import standby as standby_module
from dejaqueue.broker.standby.standby import Standby
from dejaqueue.broker.watching.health import health_of
from dejaqueue.connections.bucket import DirectoryBucket
from dejaqueue.errors import DejaQError, NotActive, Refused, TopicUnknown, Unavailable
from dejaqueue.model import Topic, TopicKind
from dejaqueue.setting_groups import (
    BackupSettings,
    EncryptionSettings,
    PayloadSettings,
    StandbySettings,
)
from dejaqueue.settings import BrokerSettings
from tests.backups import client_of, newest, settings_of, taken
from tests.patience import until

FAR = 3_600


def active_settings(tmp_path: Path, data: str = "active") -> BrokerSettings:
    backup = BackupSettings(
        url=str(tmp_path / "archive"), interval_ms=86_400_000, archive_interval_ms=5
    )
    return settings_of(tmp_path / data).model_copy(update={"backup": backup})


def standby_settings(tmp_path: Path, data: str = "standby") -> BrokerSettings:
    standby = StandbySettings(url=str(tmp_path / "archive"), poll_ms=10)
    return settings_of(tmp_path / data).model_copy(update={"standby": standby})


def started(settings: BrokerSettings) -> Broker:
    broker = Broker(settings)
    broker.start()
    return broker


class Sites:
    """An active broker with an archive, and standbys that are started as they are asked for.

    Args:
        more: settings of all of them.
    """

    def __init__(self, tmp_path: Path, **more: Any) -> None:
        self.tmp_path, self.more = tmp_path, more
        self.brokers: list[Broker] = []
        self.active = self.start(active_settings(tmp_path))
        client_of(self.active).create_topic("a", partitions=3)

    def start(self, settings: BrokerSettings) -> Broker:
        broker = started(settings.model_copy(update=self.more))
        self.brokers.append(broker)
        return broker

    def backed_up(self) -> None:
        assert taken(self.active, self.tmp_path / "archive")["state"] == "done"

    def standby(self, data: str = "standby") -> Broker:
        return self.start(standby_settings(self.tmp_path, data))

    def archived(self) -> None:
        until(lambda: self.active.backups.archiver.lag_us() == 0, "all is archived")

    def followed(self, standby: Broker) -> None:
        """The standby has all that was done at the active one before this."""
        self.archived()
        manifest = newest(self.tmp_path / "archive")
        chain = LogChain(Archive.open(str(self.tmp_path / "archive")).bucket, manifest.chain)
        last = chain.numbers().stop - 1

        def has_followed() -> bool:
            follower = standby.standby.follower
            strand = None if follower is None else follower.strands.get(manifest.chain)
            return strand is not None and strand.number >= last

        until(has_followed, "it has followed")


@pytest.fixture(autouse=True)
def _no_backup_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "FIRST_MS", 3_600_000)
    monkeypatch.setattr(standby_module, "AGAIN_MS", 20)
    monkeypatch.setattr(standby_module, "CHAIN_LOOK_US", 50_000)


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    sites = Sites(tmp_path)
    yield sites
    for broker in sites.brokers:
        broker.stop()


def send(broker: Broker, *payloads: bytes, topic: str = "a", delay: float = FAR) -> None:
    client = client_of(broker)
    for payload in payloads:
        client.send(topic, payload, delay=delay)


def payloads(broker: Broker, topic: str = "a") -> set[bytes]:
    return set(client_of(broker).peek(topic, limit=10_000).column("payload").to_pylist())


def hashes(broker: Broker, topic: str) -> list[int]:
    served = broker.runtime(topic)
    looks = [served.look(n, lambda core: core.views.state_hash()) for n in range(3)]
    return [one.result() for one in looks]


def rows(broker: Broker, topic: str = "a") -> list[Any]:
    """All that each partition knows of its live messages, but for where their bytes lie."""

    def of(core: PartitionCore) -> Any:
        engine = core.engine
        live = np.concatenate([np.zeros(0, np.int64), *engine.live_sequences()])
        columns = engine.states(live), engine.attempts(live), engine.dues(live)
        return live.tolist(), [one.tolist() for one in columns], engine.next_sequence

    served = broker.runtime(topic)
    return [served.look(number, of).result() for number in range(3)]


def promoted(broker: Broker) -> dict[str, Any]:
    return broker.call("promote")


def test_a_standby_has_what_the_active_one_has__state_for_state(sites: Sites) -> None:
    client = client_of(sites.active)
    send(sites.active, b"1", b"2", b"3", delay=0)
    send(sites.active, b"4", b"5")
    with client.consume("a", idle_ms=300) as messages:
        for message in messages:
            if message.payload != b"3":
                message.ack()
            else:
                message.nack(delay=FAR)
    sites.backed_up()
    standby = sites.standby()
    sites.followed(standby)
    assert payloads(standby) == {b"3", b"4", b"5"}
    assert rows(standby) == rows(sites.active)
    send(sites.active, b"6", b"7")
    client.create_topic("b", partitions=3)
    send(sites.active, b"8", topic="b")
    of_active = hashes(sites.active, "b")  # a look opens a partition, which begins an epoch
    sites.followed(standby)
    assert payloads(standby) == {b"3", b"4", b"5", b"6", b"7"}
    assert rows(standby) == rows(sites.active)
    assert hashes(standby, "b") == of_active  # it was followed from its birth
    assert standby.call("counts", {"topic": "a", "by": "state"}) == sites.active.call(
        "counts", {"topic": "a", "by": "state"}
    )


def test_a_standby_refuses_what_changes_something__and_says_who_is_active(sites: Sites) -> None:
    sites.backed_up()
    standby = sites.standby()
    client = client_of(standby)
    refused: list[Callable[[], object]] = [
        lambda: client.send("a", b"x"),
        lambda: client.create_topic("b"),
        lambda: client.delete_topic("a"),
        lambda: client.alter_topic("a", paused=True),
        lambda: standby.call("claim", {"topic": "a", "partition": 0, "rows": 1}),
        lambda: standby.call("backup", {"url": str(sites.tmp_path / "other")}),
        lambda: standby.call("create_key", {"name": "k", "grants": []}),
        lambda: next(iter(client.consume("a", idle_ms=1_000))),
    ]
    for change in refused:
        with pytest.raises(NotActive, match="this is a standby of .*archive.*`dejaq promote`"):
            change()
    health = health_of(standby)
    assert not health.is_ready
    assert "standby" in health.reasons[0]
    assert sites.active.call("standby") == {"state": "active"}
    with pytest.raises(Refused, match="no standby"):
        sites.active.call("promote")


def test_a_promoted_standby_serves_all_that_was_archived__and_the_other_one_is_refused(
    sites: Sites,
) -> None:
    sites.backed_up()
    standby = sites.standby()
    client = client_of(sites.active)
    with client.transaction() as transaction:
        transaction.send("a", b"t1", delay=FAR)
        transaction.send("a", b"t2", delay=FAR)
    send(sites.active, *(b"%d" % number for number in range(20)))
    sites.archived()
    done = promoted(standby)
    assert done["state"] == "active"
    assert done["took_ms"] < 60_000
    assert payloads(standby) == {b"t1", b"t2", *(b"%d" % number for number in range(20))}
    send(standby, b"later", delay=0)
    with client_of(standby).consume("a", idle_ms=500) as messages:
        assert [(one.payload, one.ack())[0] for one in messages] == [b"later"]
    # The other one is told when it next archives something; it takes what is sent until then.
    send(sites.active, b"lost")
    until(lambda: sites.active.site.refusal() is not None, "the fence is met")
    for call in (lambda: send(sites.active, b"x"), lambda: payloads(sites.active)):
        with pytest.raises(NotActive, match=r"was replaced: standby \w+ .* was promoted at 2"):
            call()
    assert any("replaced" in reason for reason in health_of(sites.active).reasons)
    sites.active.stop()
    with pytest.raises(NotActive, match="was replaced"):
        Broker(active_settings(sites.tmp_path)).start()


def test_an_old_one_is_refused_at_its_start__that_never_met_the_fence(sites: Sites) -> None:
    sites.backed_up()
    standby = sites.standby()
    sites.active.stop()
    promoted(standby)
    with pytest.raises(NotActive, match="was replaced"):
        Broker(active_settings(sites.tmp_path)).start()
    # It is noted in the directory: a start without the archive is refused, too.
    with pytest.raises(NotActive, match="was replaced"):
        Broker(settings_of(sites.tmp_path / "active")).start()
    with pytest.raises(NotActive, match="nothing more is archived there"):
        sites.standby("third")


def test_a_promoted_standby_stays_active_over_a_start__and_has_an_archive_of_its_own(
    sites: Sites,
) -> None:
    sites.backed_up()
    send(sites.active, b"1")
    sites.archived()
    standby = sites.standby()
    promoted(standby)
    standby.stop()
    archives = {"backup": active_settings(sites.tmp_path).backup}
    again = sites.start(standby_settings(sites.tmp_path).model_copy(update=archives))
    send(again, b"2")
    assert payloads(again) == {b"1", b"2"}
    assert taken(again, sites.tmp_path / "archive")["state"] == "done"
    send(again, b"3")
    until(lambda: again.backups.archiver.lag_us() == 0, "all is archived")
    second = sites.standby("second")  # follows the one that is active now
    sites.active = again
    sites.followed(second)
    assert payloads(second) == {b"1", b"2", b"3"}
    promoted(second)
    assert payloads(second) == {b"1", b"2", b"3"}


def test_of_two_that_are_promoted_at_once_one_wins(sites: Sites) -> None:
    sites.backed_up()
    send(sites.active, b"1")
    sites.archived()
    both = [sites.standby("left"), sites.standby("right")]
    wishes = [one.standby.promote() for one in both]
    outcomes = [one.exception(60) for one in wishes]
    winner, loser = (0, 1) if outcomes[0] is None else (1, 0)
    assert outcomes[winner] is None
    assert isinstance(outcomes[loser], NotActive), outcomes
    assert payloads(both[winner]) == {b"1"}
    with pytest.raises(NotActive):
        send(both[loser], b"2")
    with pytest.raises(NotActive, match="another one is active|nothing more comes"):
        promoted(both[loser])
    assert "active" in both[loser].standby.trouble or "promoted" in both[loser].standby.trouble


class _Died(BaseException):
    """Stands for a kill."""


@pytest.mark.parametrize("where", ["before the fence", "behind the fence", "behind the seal"])
def test_a_promotion_that_was_cut_off_goes_on_at_the_next_start(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    sites.backed_up()
    send(sites.active, b"1")
    sites.archived()
    standby = sites.standby()
    sites.followed(standby)
    died = threading.Event()

    def die(*args: object, **more: object) -> None:
        died.set()
        raise _Died

    patched = {
        "before the fence": (standby_module, "put_fence"),
        "behind the fence": (standby_module.Standby, "_seal"),
        "behind the seal": (type(standby), "serve_as_active"),
    }
    target, name = patched[where]
    with monkeypatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda _: None)
        patch.setattr(target, name, die)
        standby.standby.promote()
        assert died.wait(60)
        assert standby.standby.running is not None
        standby.standby.running.join()
    standby.stop()
    again = sites.standby()
    until(lambda: not again.site.stands_by, "it goes on by itself")
    until(lambda: payloads(again) == {b"1"}, "it has all")
    send(again, b"2")
    bucket = Archive.open(str(sites.tmp_path / "archive")).bucket
    fence = read_fence(bucket, newest(sites.tmp_path / "archive").store)
    assert fence is not None
    assert again.standby.record is not None
    assert fence.standby == again.standby.record.id


def test_a_standby_goes_on_where_it_was__after_a_start(sites: Sites) -> None:
    sites.backed_up()
    standby = sites.standby()
    send(sites.active, b"1", b"2")
    sites.followed(standby)
    standby.stop()
    send(sites.active, b"3")
    client_of(sites.active).create_topic("b")
    send(sites.active, b"4", topic="b")
    again = sites.standby()
    assert again.standby.record is not None
    assert [number > 0 for number, _ in again.standby.record.strands.values()] == [True]
    sites.followed(again)
    assert (payloads(again), payloads(again, "b")) == ({b"1", b"2", b"3"}, {b"4"})


def test_topics_that_are_deleted_and_made_again_are_followed(sites: Sites) -> None:
    sites.backed_up()
    standby = sites.standby()
    client = client_of(sites.active)
    for life in range(3):
        client.create_topic("b", partitions=2)
        send(sites.active, b"b%d" % life, topic="b")
        if life < 2:
            client.delete_topic("b")
    client.create_topic("gone")
    client.delete_topic("gone")
    client.alter_topic("a", partitions=5)
    sites.followed(standby)
    assert payloads(standby, "b") == {b"b2"}
    assert standby.topic("a").partitions == 5
    with pytest.raises(TopicUnknown):
        payloads(standby, "gone")


def test_subscriptions_priorities_and_cron_are_followed__and_nothing_is_done_in_them(
    sites: Sites,
) -> None:
    client = client_of(sites.active)
    client.create_topic("s", subscriptions={"left": {}, "right": {}})
    sites.active.create_topic(Topic("timer", kind=TopicKind.CRON))
    client.cron("timer").put("often", every_ms=1_000, payload=b"tick")
    sites.backed_up()
    standby = sites.standby()
    send(sites.active, b"1", topic="s", delay=0)
    with client.consume("s@left", idle_ms=300) as messages:
        for message in messages:
            message.ack()
    sites.followed(standby)
    assert (payloads(standby, "s@left"), payloads(standby, "s@right")) == (set(), {b"1"})
    assert len(standby.call("cron_list", {"topic": "timer"})["entries"]) == 1


def test_a_lease_of_the_other_site_is_kept__until_it_ends(sites: Sites) -> None:
    client = client_of(sites.active)
    client.create_topic("slow", lease_ms=60_000)
    send(sites.active, b"held", topic="slow", delay=0)
    sites.backed_up()
    standby = sites.standby()
    with client.consume("slow", idle_ms=2_000) as messages:
        message = next(iter(messages))
        sites.followed(standby)
        promoted(standby)
        with client_of(standby).consume("slow", idle_ms=500) as others:
            assert [one.payload for one in others] == []
        counts = standby.call("counts", {"topic": "slow", "by": "state"})
    assert "leased" in str(counts), counts
    assert message.payload == b"held"


def begins_another_chain(sites: Sites, *sent: bytes) -> None:
    """The archive of the active one breaks, and a backup has what is sent in between."""
    sites.active.backups.archiver._break("a test")
    send(sites.active, *sent)
    sites.backed_up()


def test_an_archive_that_goes_on_in_another_chain_is_followed_into_it(
    sites: Sites, caplog: pytest.LogCaptureFixture
) -> None:
    sites.backed_up()
    standby = sites.standby()
    send(sites.active, b"1")
    sites.followed(standby)
    client_of(sites.active).create_topic("b")
    for life in range(3):
        begins_another_chain(sites, b"2 of %d" % life)
        send(sites.active, b"3 of %d" % life, topic="b")
        sites.followed(standby)
        assert rows(standby) == rows(sites.active)
        assert payloads(standby, "b") == payloads(sites.active, "b")
    assert "begins anew with another backup" in caplog.text
    until(lambda: not standby.standby.trouble, "nothing is wrong any more")
    assert not (Path(standby.settings.journal.url) / filling.BESIDE).exists()
    with pytest.raises(NotActive, match="this is a standby"):
        send(standby, b"x")
    send(sites.active, b"last")
    sites.archived()
    promoted(standby)
    assert payloads(standby) == {b"1", b"2 of 0", b"2 of 1", b"2 of 2", b"last"}
    send(standby, b"of this site")
    standby.stop()
    again = sites.standby()
    assert b"of this site" in payloads(again)


def test_a_promotion_ends_though_the_other_one_archives_quicker_than_it_is_followed(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_module, "NEAR_STEPS", 1 << 60)  # it never has caught up
    monkeypatch.setattr(standby_module, "CATCH_UP_US", 200_000)
    monkeypatch.setattr(Standby, "_stepped", lambda *_: True)
    sites.backed_up()
    standby = sites.standby()
    reached = threading.Event()

    def seal(*_: object) -> None:
        reached.set()
        raise Unavailable("a test", 100)

    monkeypatch.setattr(Standby, "_seal", seal)
    with pytest.raises(Unavailable, match="a test"):
        promoted(standby)
    assert reached.is_set()


def test_an_encrypted_standby_follows_into_another_chain(tmp_path: Path) -> None:
    master = tmp_path / "master.key"
    master.touch(mode=0o600)
    master.write_text(base64.b64encode(bytes(range(32))).decode())
    sealed = {"encryption": EncryptionSettings(master_key=f"file:{master}")}
    sites = Sites(tmp_path, **sealed)
    try:
        active = sites.active
        send(active, b"a secret", b"1")
        sites.backed_up()
        standby = sites.standby()
        sites.followed(standby)
        begins_another_chain(sites, b"another secret")
        send(active, b"2")
        sites.followed(standby)
        assert payloads(standby) == {b"a secret", b"1", b"another secret", b"2"}
        assert rows(standby) == rows(active)
        sites.archived()
        promoted(standby)
        assert payloads(standby) == payloads(active)
    finally:
        for broker in sites.brokers:
            broker.stop()
    for path in (tmp_path / "standby").rglob("*"):
        assert not path.is_file() or b"secret" not in path.read_bytes(), path


def test_large_payloads_of_the_other_site_are_read__and_go_when_their_messages_are_done(
    tmp_path: Path,
) -> None:
    store = tmp_path / "payloads"
    apart = {"payloads": PayloadSettings(url=str(store), inline_bytes_max=1 << 10)}
    sites = Sites(tmp_path, **apart)

    def stored() -> set[str]:
        return {one.name for one in DirectoryBucket(store).objects("")}

    def compare(broker: Broker) -> None:
        broker._payload_collector.collect(orphan_ms=-(10**13))
        broker._payload_collector.delete_doomed(stale_ms=0)

    try:
        client = client_of(sites.active)
        client.create_topic("gone")
        client.alter_topic("a", max_payload_bytes=4 << 20)
        large = [bytes([number]) * 5_000 for number in range(6)]
        send(sites.active, *large[:2], delay=0)
        send(sites.active, large[2], topic="gone")
        client.send("a", io.BytesIO(b"s" * 2_000_000), key="streamed", delay=0)
        client.send("a", large[5], key="cancelled", delay=FAR)
        sites.backed_up()
        standby = sites.standby()
        send(sites.active, *large[3:5], delay=0)
        sites.followed(standby)
        before = {name for name in stored() if "/uploads/" not in name}  # the message has a copy
        assert len(before) > 7
        promoted(standby)
        until(lambda: sites.active.site.refusal() is not None or send_lost(sites), "it is refused")
        compare(sites.active)  # it deletes nothing that is this one's now
        compare(standby)
        assert before <= stored()
        mine = client_of(standby)
        with mine.consume("a", idle_ms=2_000, max_messages=5, prefetch=1) as messages:
            taken_now = set()
            for message in messages:
                with message.open() as payload:
                    taken_now.add(b"".join(payload))
                message.ack()
        assert taken_now == {large[0], large[1], large[3], large[4], b"s" * 2_000_000}
        mine.cancel("a", keys=["cancelled"])
        mine.delete_topic("gone")
        compare(standby)
        assert not before & stored()
        # A backup of this site has the ids of both, for whoever follows it.
        assert taken(standby, tmp_path / "archive")["state"] == "done"
        assert newest(tmp_path / "archive").payload_ids == standby.payloads.ids
        assert len(standby.payloads.ids) == 2
    finally:
        for broker in sites.brokers:
            broker.stop()


def send_lost(sites: Sites) -> bool:
    """Send something to the one that was replaced, which tells it."""
    with suppress(DejaQError):
        send(sites.active, b"lost")
    return False


def test_a_promotion_waits_for_what_another_chain_has(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_module, "CHAIN_LOOK_US", 3_600_000_000)  # nobody else looks
    sites.backed_up()
    standby = sites.standby()
    send(sites.active, b"1")
    sites.followed(standby)
    begins_another_chain(sites, b"2")
    send(sites.active, b"3")
    sites.archived()
    assert promoted(standby)["state"] == "active"
    assert payloads(standby) == {b"1", b"2", b"3"}


def test_a_promotion_waits_for_what_was_given_up_before_it_was_applied(sites: Sites) -> None:
    sites.backed_up()
    settings = standby_settings(sites.tmp_path)
    seldom = settings.standby.model_copy(update={"poll_ms": 3_600_000})
    standby = sites.start(settings.model_copy(update={"standby": seldom}))
    until(lambda: standby.standby.follower is not None, "it has looked once")
    for life in range(4):
        send(sites.active, b"%d" % life)
        sites.archived()
        sites.backed_up()
    sites.archived()
    chain = LogChain(Archive.open(str(sites.tmp_path / "archive")).bucket, newest_chain(sites))
    until(lambda: chain.numbers().start > 1, "pieces that backups have are given up")
    assert promoted(standby)["state"] == "active"
    assert payloads(standby) == {b"0", b"1", b"2", b"3"}


def newest_chain(sites: Sites) -> str:
    return newest(sites.tmp_path / "archive").chain


def test_what_it_has_can_be_read_while_it_is_filled_anew__and_a_failure_is_told(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_module, "ANEW_US", 50_000)
    sites.backed_up()
    standby = sites.standby()
    send(sites.active, b"1")
    sites.followed(standby)
    tried = threading.Semaphore(0)

    def fail(*_: object) -> int:
        tried.release()
        raise Unavailable("the disk is away", 100)

    with monkeypatch.context() as patch:
        patch.setattr(filling, "_write", fail)
        begins_another_chain(sites, b"2")
        for _ in range(2):
            assert tried.acquire(timeout=60)
        until(lambda: "the disk is away" in standby.standby.trouble, "it is told")
        assert any("the disk is away" in one for one in health_of(standby).warnings)
        assert payloads(standby) == {b"1"}
        with pytest.raises(Unavailable, match="the disk is away"):
            promoted(standby)
    sites.followed(standby)
    assert payloads(standby) == {b"1", b"2"}


def test_a_standby_that_was_killed_while_it_is_exchanged_is_filled_at_its_start(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.backed_up()
    standby = sites.standby()
    send(sites.active, b"1")
    sites.followed(standby)
    died, renamed = threading.Event(), list[Path]()

    def rename(path: Path, other: Path) -> None:
        if renamed:
            died.set()
            raise _Died
        renamed.append(path)
        shutil.move(path, other)

    with monkeypatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda _: None)
        patch.setattr(Path, "rename", rename)
        begins_another_chain(sites, b"2")
        assert died.wait(60)
        assert standby.standby.running is not None
        standby.standby.running.join()
    with pytest.raises(Unavailable, match="is exchanged"):
        payloads(standby)
    standby.stop()
    again = sites.standby()
    sites.followed(again)
    assert payloads(again) == {b"1", b"2"}


def test_entries_that_only_a_backup_has_are_taken_from_there(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An archiver that is behind when a backup is done leaves out what that has."""
    monkeypatch.setattr(standby_module, "STRAND_LOOK_US", 50_000)
    sites.backed_up()
    standby = sites.standby()
    sites.followed(standby)
    tried = threading.Event()

    def away(*_: object) -> bool:
        tried.set()
        raise Unavailable("away", 100)

    with monkeypatch.context() as patch:
        patch.setattr(LogChain, "put_new", away)
        send(sites.active, b"1")
        assert tried.wait(60)
        send(sites.active, b"2")
        sites.backed_up()
    send(sites.active, b"3")
    until(lambda: payloads(standby) == {b"1", b"2", b"3"}, "it has followed")
    assert "a newer backup goes on" in caplog.text
    promoted(standby)
    assert payloads(standby) == {b"1", b"2", b"3"}


def test_an_old_one_hears_of_the_fence__though_that_cannot_be_read_at_first(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.backed_up()
    standby = sites.standby()
    promoted(standby)
    tries = list[object]()
    real = fence_module.read_fence

    def read(*arguments: Any) -> Any:
        tries.append(arguments)
        if len(tries) < 4:
            raise Unavailable("away", 100)
        return real(*arguments)

    monkeypatch.setattr(archiver, "AGAIN_MS_MAX", 20)
    monkeypatch.setattr(archiver, "read_fence", read)
    send(sites.active, b"lost")
    until(lambda: sites.active.site.refusal() is not None, "the fence is met")
    assert len(tries) == 4


def test_an_old_one_whose_archive_had_ended_hears_of_the_fence_with_a_backup(sites: Sites) -> None:
    sites.backed_up()
    standby = sites.standby()
    sites.active.backups.archiver._break("a test")
    promoted(standby)
    send(sites.active, b"lost")
    sites.active.call("backup", {"url": str(sites.tmp_path / "archive")})
    until(lambda: sites.active.site.refusal() is not None, "the fence is met")
    with pytest.raises(NotActive, match="was replaced"):
        send(sites.active, b"x")


def test_a_filling_that_was_cut_off_begins_again(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(sites.active, b"1", b"2", b"3", b"4", b"5")
    sites.backed_up()
    written: list[Any] = []
    real = filling._write

    def die(*args: Any) -> int:
        if len(written) == 1:
            raise _Died
        written.append(args)
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(filling, "_write", die)
        with pytest.raises(_Died):
            sites.standby()
    assert payloads(sites.standby()) == {b"1", b"2", b"3", b"4", b"5"}


def test_an_archive_that_is_away_is_waited_for(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.backed_up()
    standby = sites.standby()
    sites.followed(standby)

    def away(*_: object) -> None:
        raise Unavailable("away", 100)

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryBucket, "get", away)
        until(lambda: standby.standby.trouble == "away", "it is told")
        until(lambda: standby.standby.behind_us() > 100_000, "it is behind")
        with pytest.raises(Unavailable):
            promoted(standby)
        assert payloads(standby) == set()
        assert standby.site.stands_by
    send(sites.active, b"1")
    sites.followed(standby)
    until(lambda: not standby.standby.trouble, "it goes on")
    assert payloads(standby) == {b"1"}


def test_a_directory_that_has_something_is_no_standby(sites: Sites, tmp_path: Path) -> None:
    sites.backed_up()
    own = started(settings_of(tmp_path / "own"))
    client_of(own).create_topic("x")
    own.stop()
    with pytest.raises(Refused, match="an empty directory"):
        started(standby_settings(tmp_path, "own"))
    standby = sites.standby()
    standby.stop()
    with pytest.raises(Refused, match="was not promoted"):
        started(settings_of(tmp_path / "standby"))
    nowhere = {"standby": StandbySettings(url=str(tmp_path / "none"))}
    nothing = settings_of(tmp_path / "nothing").model_copy(update=nowhere)
    with pytest.raises(DejaQError, match="a place with backups"):
        started(nothing)
