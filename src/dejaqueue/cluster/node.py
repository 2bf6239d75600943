"""A broker as one of several: it is a member, owns slots, and knows the owners of the others.

    node = Node("a", open_coordinator(url), lease_ms=5_000)
    broker = Broker(settings, node=node)
    broker.start()
    node.start(broker, url="dejaq://10.0.0.1:7464", http_url="http://10.0.0.1:7465")

Room: cluster. Its threads are its own: one renews the membership and reads the API keys, one goes
its rounds, one watches the time.
Holds: a slot is served only while its fact names this life of this broker and the membership is
valid; a planned hand-over is drained before the fact is released; a broker whose membership ends
lets go of everything first, and rejoins under a new identity.
See: ownership.py for what is decided in a round; ADR 0015.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from dejaqueue.access.key_ring import KeyRing
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.catalogue import Catalogue
from dejaqueue.broker.topic.cluster_port import Disks
from dejaqueue.broker.topic.threads import Running, Threads
from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.clock import Clock, SteadyClock, Wake
from dejaqueue.cluster import members, ownership
from dejaqueue.cluster.backup_turns import BackupTurns
from dejaqueue.cluster.care import Care
from dejaqueue.cluster.catalogue import KEY as CATALOGUE
from dejaqueue.cluster.catalogue import ClusterCatalogue
from dejaqueue.cluster.checking import Astray, check
from dejaqueue.cluster.claims import Claims
from dejaqueue.cluster.clocks import ClockComparison
from dejaqueue.cluster.disk import Disk, disks_of
from dejaqueue.cluster.handing_over import HandOvers
from dejaqueue.cluster.identity import agree
from dejaqueue.cluster.layout import Layout
from dejaqueue.cluster.leftovers import Leftovers
from dejaqueue.cluster.members import Member, Membership, members_of, new_session
from dejaqueue.cluster.ownership import View
from dejaqueue.cluster.placement import hashed_slot, slot_of, start_for
from dejaqueue.cluster.shared_keys import PREFIX as KEYS
from dejaqueue.cluster.shared_keys import SharedKeys
from dejaqueue.cluster.sight import Sight
from dejaqueue.coordinator.interface import Coordinator, Fact, Watch
from dejaqueue.errors import DejaQError, Elsewhere, Refused, Unavailable
from dejaqueue.journal.interface import JournalStore
from dejaqueue.journal.processes import tell_slots
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.journal.segments.shared_store import TopicSlots
from dejaqueue.model import Topic
from dejaqueue.version import __version__

ROUND_MS = 1_000
"""A round runs at least this often, bells or not."""
AGAIN_MS = 50
"""A round that was not the last for now is followed by another one after so long."""
REFRESH_MS = 10_000
"""Topics are read again at least this often, bells or not."""
PLACED_SECONDS_MAX = 5.0
SETTLED_SECONDS_MAX = 10.0
"""How long a call waits for a deletion, which goes on after that."""
SETTLE_US = 1_000_000
LEAVING_TRIES = 3
LEAVE_SECONDS_MAX = 60.0
"""A broker that is stopped ends after so long, whatever hangs."""

log = logging.getLogger("dejaqueue.cluster")


class Node:
    """What a broker shares with others (ClusterPort), and its place among them.

    Args:
        name: of this broker, unique in the cluster.
        lease_ms: after this long without a renewal others take over what it has.
        slots: into how many topics are dealt, if this broker makes the cluster.
        clock: elapsed time.
        threads: where its loops run.
        keys: the API keys of the cluster; None = those of the coordinator, without a seal.
        adopts: let a coordinator that knows no cluster take that of the journals.

    Attributes:
        planned: all brokers that there will be, by name; empty = that is not known.
        on_gone: called with the url of a broker that is no member any more; must not wait.
        on_join: called with the key of this broker's fact and its session when it has joined.
        astray: topics that the catalogue or the journals lack, as far as was last seen.
        clocks: how far those of other brokers are off.
        disk: of the server beside this broker; None = there is none.
        care: does what is asked of the servers of the cluster; None = they are not JetStream.
    """

    def __init__(
        self,
        name: str,
        coordinator: Coordinator,
        lease_ms: int,
        clock: Clock | None = None,
        threads: Threads | None = None,
        keys: SharedKeys | None = None,
        *,
        slots: int = 64,
        adopts: bool = False,
    ) -> None:
        self.name = name
        self.coordinator = coordinator
        self._lease_ms = lease_ms
        self._clock: Clock = clock or SteadyClock()
        self._where = threads or Threads()
        self._keys = keys or SharedKeys(coordinator, lease_ms, self._clock)
        self._member = Member(name, "", "", "", __version__)
        self._membership: Membership | None = None
        self._place = 0
        self._broker: Broker | None = None
        self._catalogue: ClusterCatalogue | None = None
        self._view = View({}, {})
        self.clocks = ClockComparison(name, coordinator, self._clock, lease_ms)
        self.on_gone: Callable[[str], None] = lambda url: None
        self.on_join: Callable[[str, str], None] = lambda key, session: None
        self.planned: tuple[str, ...] = ()
        self.disk: Disk | None = None
        self.care: Care | None = None
        self.astray: list[Astray] = []
        self._adopts = adopts
        self._slots = slots
        self._layout = Layout()
        self._sight = Sight(coordinator, self._clock)
        self._claims = Claims(name, coordinator, self._where, self._sight.owners_facts)
        self._leftovers = Leftovers(name, self._where, self._slot, self._see_topics, self._clock)
        self._mine: dict[int, int] = {}
        """Slots that a round has found to be ours, with the revision of their facts."""
        self._looking: list[Wake] = []
        """Rung after each round, for calls that wait for its outcome."""
        self._round = Wake()
        ring = self._round.ring
        self._hand_overs = HandOvers(self._where, self._topics_of, self._release, ring, self._clock)
        self._renewal = Wake()
        self._deadline = Wake()
        self._leaving = self._stopping = False
        self._topics_changed, self._is_behind = True, False
        self._refresh_us = self._settled_us = 0
        """Until then, after it has joined, this broker leaves others what was theirs. If all lost
        their membership with the coordinator, all come back; if not, the first would take over
        everything, and hand most of it back."""
        self._serving = self._where.lock()
        """Held where serving begins or a fence ends it, so that nothing begins after the fence."""
        self._threads: list[Running] = []
        self._checker: Running | None = None
        self._watches: list[Watch] = []

    # --- what the broker asks (Shared) ---------------------------------------------------------

    def catalogue(
        self, store: JournalStore, snapshot_writer: Executor, now_ms: Callable[[], int]
    ) -> Catalogue:
        """All topics of the cluster. Raises Refused (identity.py), JournalDamaged, Unavailable."""
        where = self._where

        def open_log() -> CatalogueLog:
            return CatalogueLog(store, where.lock(), snapshot_writer, now_ms, where.future)

        known, log = agree(
            self.coordinator, open_log, self._clock, slots=self._slots, adopts=self._adopts
        )
        self._slots = known.slots
        self._catalogue = ClusterCatalogue(store, log, self.coordinator)
        self._catalogue.start_of = self._start_of
        self._catalogue.stays_where_it_lies = tell_slots(store, self._slots_of, self._slots)
        return self._catalogue

    def _slot(self, topic: str) -> int:
        assert self._catalogue is not None
        return slot_of(topic, self._catalogue.placed(), self._slots)

    def _laid_out(self) -> Layout:
        """Which topics lie in which slots, by what is known of them now."""
        assert self._catalogue is not None
        if self._layout.version != self._catalogue.version:
            self._layout = self._layout.after(self._catalogue, self._slots)
        return self._layout

    def _slots_of(self, topic: str) -> TopicSlots:
        """Where a topic lies, for a store in which a slot is a log of its own."""
        assert self._catalogue is not None
        return TopicSlots(self._slot(topic), self._catalogue.spread_of(topic))

    def _start_of(self, topic: Topic) -> int:
        assert self._catalogue is not None
        if self._catalogue.stays_where_it_lies:
            return hashed_slot(topic.name, self._slots)
        staying = [one.node for one in self._view.members.values() if not one.leaving]
        return start_for(topic, self._catalogue.placed(), staying, self._slots)

    def elsewhere(self, topic: str) -> DejaQError:
        """The error that names the broker of a topic that is not served here."""
        owner = self._view.living_owner(self._slot(topic))
        if owner is None or owner.node == self.name:
            return Elsewhere(f"topic {topic} is between two owners", 50)
        return Elsewhere(
            f"topic {topic} is served by {owner.node} at {owner.url}",
            50,
            owner.node,
            owner.url,
            owner.http_url,
        )

    def refusal(self, topic: str, *, begins: bool = False) -> DejaQError | None:
        """Why journals of a topic must not be opened here now; see ClusterPort."""
        membership = self._membership
        if membership is None or not membership.is_valid():
            return Unavailable(f"node {self.name} has lost touch with the cluster", 100)
        slot = self._slot(topic)
        if slot not in self._mine or (begins and self._hand_overs.is_closing(slot)):
            return self.elsewhere(topic)
        return None

    def fenced(self, topic: str) -> None:
        """A journal of the topic has another owner: look before it is opened again."""
        self._mine.pop(self._slot(topic), None)
        self._sight.doubt()
        self._round.ring()

    def placed(self, topic: str) -> None:
        """Return when somebody serves the topic, or after five seconds."""

        def is_served() -> bool:
            slot = self._slot(topic)
            owner = self._view.living_owner(slot)
            return owner is not None and (owner.node != self.name or slot in self._mine)

        if not is_served():
            self._look_until(is_served, PLACED_SECONDS_MAX)

    def settled(self, topic: str) -> None:
        """Return when a topic is not being deleted any more. Raises Unavailable."""
        catalogue = self._catalogue
        assert catalogue is not None
        if not self._look_until(lambda: topic not in catalogue.changing(), SETTLED_SECONDS_MAX):
            catalogue.check_settled(topic)

    def _look_until(self, found: Callable[[], bool], seconds: float) -> bool:
        """Go rounds until something is true; False: it takes longer than that."""
        self._see_topics()
        until_us, bell = self._clock.now_us() + int(seconds * 1e6), Wake()
        self._looking.append(bell)
        try:
            while not found():
                if self._clock.now_us() >= until_us:
                    return False
                self._clock.wait_until(until_us, bell)
        finally:
            self._looking.remove(bell)
        return True

    def describe(self, topic: str) -> dict[str, Any]:
        """The members of the cluster, and which topic each serves."""
        assert self._catalogue is not None
        view, placed = self._view, self._catalogue.placed()
        names = (topic,) if topic else sorted(self._catalogue.names())
        return {
            "node": self.name,
            "coordinator": self.coordinator.summary,
            "astray": len(self.astray),
            "nodes": [
                {**member.described(), "clock": self.clocks.described(member)}
                for member in sorted(view.members.values(), key=lambda member: member.node)
            ],
            "topics": ownership.served(view, placed, names, self._slots),
        }

    def act(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """What an operator asks of the cluster; see care.py, checking.py."""
        if name == "check_cluster":
            return {"astray": [one.to_dict() for one in self._check()]}
        if self.care is None:
            raise Refused("only servers of JetStream are removed and repaired by brokers")
        return self.care.act(name, body)

    def open_keys(self, keys: KeyRing) -> None:
        """Have the API keys be those of the cluster. Raises as KeyRing.open."""
        self._keys.open(keys)

    def _check(self) -> list[Astray]:
        """Look for topics that the catalogue or the journals lack. Raises Unavailable."""
        assert self._catalogue is not None
        assert self._broker is not None
        found = self.astray = check(self._catalogue, self._broker.store)
        for one in found[:10]:
            log.error("topic %s, journals %s: %s", one.topic or "?", one.journals, one.lack)
        if found:
            log.error("%d topics are astray: see `dejaq cluster check`", len(found))
        return found

    def _check_once(self) -> None:
        try:
            self._check()
        except DejaQError as error:
            log.warning("node %s: topics were not checked: %s", self.name, error)

    # --- life ---------------------------------------------------------------------------------

    def start(self, broker: Broker, url: str, http_url: str) -> None:
        """Join, and serve what falls to it. Raises Locked. Unavailable: it may be called again."""
        self._broker = broker
        broker.backups.turns = BackupTurns(self.name, self.coordinator, self._clock)
        if isinstance(broker.store, RecordJournalStore):
            broker.store.is_short = lambda: bool(self.disks.short)
        self._member = replace(self._member, url=url, http_url=http_url)
        if self._membership is None:
            self._join()
        self._keys.refresh()
        self._watches += self._sight.open(self._round.ring)
        for prefix, bell in ((CATALOGUE, self._see_topics), (KEYS, self._renewal.ring)):
            self._watches.append(self.coordinator.watch(prefix, bell))
        for name, run in (
            ("dejaq-member", self._renew_for_ever),
            ("dejaq-owner", self._go_rounds),
            ("dejaq-fence", self._watch_time),
        ):
            self._threads.append(self._where.start_for_ever(name, run))

    def _join(self) -> None:
        url, http_url = self._member.url, self._member.http_url
        session, place = new_session(), self._place
        self._member = Member(
            self.name, session, url, http_url, __version__, comparing=True, place=place
        )
        self.clocks.begin()
        self._member = self._with_clock(self._member, self.coordinator.list(members.PREFIX))
        lock = self._where.lock()
        membership = Membership(self.coordinator, self._member, self._lease_ms, self._clock, lock)
        # What an earlier life of this node left vanishes by itself.
        membership.join_within(2 * self._lease_ms + 1_000)
        self.clocks.begin()  # waiting for an earlier life may have taken all the time there is
        self._settled_us = self._clock.now_us() + min(self._lease_ms * 500, SETTLE_US)
        self._membership = membership
        self._sight.doubt()
        self.on_join(membership.key, self._member.session)
        log.info("node %s has joined; %s keeps the facts", self.name, self.coordinator.summary)
        if self._checker is not None:
            self._checker.join()
        self._checker = self._where.start("dejaq-check", self._check_once, daemon=True)

    def stop(self) -> None:
        """Hand everything over and leave. Twice or before start is fine."""
        if self._leaving:
            return
        self._leaving = True
        membership = self._membership
        if membership is not None and membership.is_valid() and self._broker is not None:
            self._broker.backups.archiver.finish()  # what is handed over is closed here
            self._hand_all_over(membership, self._broker)
        self._stopping = True
        for wake in (self._round, self._renewal, self._deadline):
            wake.ring()
        for thread in (*self._threads, self._checker):
            if thread is not None:
                thread.join()
        for watch in self._watches:
            watch.close()
        self._hand_overs.close()
        self._keys.keep_uses()
        try:
            if membership is not None and membership.is_valid():
                self.clocks.forget()
                membership.leave()
        except DejaQError as error:
            log.warning("node %s could not leave: %s", self.name, error)
        self.coordinator.close()

    def _hand_all_over(self, membership: Membership, broker: Broker) -> None:
        """Give up all slots, while the rounds go on and the membership is renewed."""
        until_us = self._clock.now_us() + round(LEAVE_SECONDS_MAX * 1e6)
        try:
            membership.change(replace(membership.member, leaving=True))  # others may take them now
        except DejaQError as error:
            log.warning("node %s could not hand over: %s", self.name, error)
            return
        for _ in range(LEAVING_TRIES):  # a round that had begun before may claim some
            self._hand_overs.begin(broker, dict(self._mine), self._next_owners(leaves=True))
            self._hand_overs.wait(until_us)
        if self._mine:
            log.warning("node %s leaves, though not all was handed over", self.name)

    # --- threads ------------------------------------------------------------------------------

    def _renew_for_ever(self) -> None:
        while not self._stopping:
            membership = self._membership
            wait_ms = self._lease_ms // 4
            try:
                if membership is None and self._leaving:
                    pass  # others have taken over
                elif membership is None:
                    self._join()
                    self._deadline.ring()
                    self._round.ring()
                elif not membership.renew():
                    log.warning("the membership of node %s has ended", self.name)
                    self._deadline.ring()
                self._keys.refresh()
            except DejaQError as error:
                log.warning("node %s can't renew its membership or keys: %s", self.name, error)
                wait_ms = min(wait_ms, 250)
            self._clock.wait_until(self._clock.now_us() + wait_ms * 1_000, self._renewal)

    def _watch_time(self) -> None:
        while not self._stopping:
            membership = self._membership
            if membership is None:
                self._clock.wait_until(None, self._deadline)
            elif membership.is_valid():
                self._clock.wait_until(membership.valid_until_us, self._deadline)
            else:
                self._fence()

    def _fence(self) -> None:
        """Serve nothing any more: others may take it over from now on."""
        log.error("node %s stops serving: its membership was not renewed in time", self.name)
        assert self._broker is not None
        with self._serving:
            # Whose clock was right was there before whoever comes before it is back.
            if self._membership is not None:
                self._place = self._membership.place if self._member.takes else 0
            self._membership, self._mine = None, {}
            self._broker.turn_hold.forget_all()
            served = [runtime.served_as for runtime in self._broker.runtimes()]
        self._hand_overs.drop(self._broker, served)
        self._renewal.ring()

    def _go_rounds(self) -> None:
        while not self._stopping:
            began_us, again_ms = self._clock.now_us(), ROUND_MS
            try:
                again_ms = self.round()
            except DejaQError as error:
                log.warning("node %s: a round failed: %s", self.name, error)
            self._clock.wait_until(self._clock.now_us() + again_ms * 1_000, self._round)
            self._sight.rest(began_us)

    def _see_topics(self) -> None:
        self._topics_changed = True
        self._round.ring()

    def _forget_gone(self, living: dict[str, Member]) -> None:
        """End now what was passed on to brokers that are no members any more."""
        here = {member.url for member in living.values()}
        for member in self._view.members.values():
            if member.url not in here and member.node != self.name:
                log.info("node %s is gone", member.node)
                self.on_gone(member.url)

    # --- a round ------------------------------------------------------------------------------

    def round(self) -> int:
        """Read members and owners; take slots over and give them away. Raises Unavailable.

        Returns:
            After how many milliseconds to look again: sooner if somebody else was quicker, and
            when it is time to look at clocks.
        """
        membership, broker, catalogue = self._membership, self._broker, self._catalogue
        if membership is None or broker is None or catalogue is None or not membership.is_valid():
            return ROUND_MS
        broker.ahead.let_go_idle()
        session = membership.member.session
        if self._topics_changed or self._clock.now_us() >= self._refresh_us:
            self._topics_changed = False
            self._refresh_us = self._clock.now_us() + REFRESH_MS * 1_000
            self._read_catalogue(catalogue, broker)
        if broker.keys.peers_key is None:
            broker.keys.peers_key = members.peers_key(self.coordinator)
        living = members_of(facts := self._sight.members())
        if all(member.session != session for member in living.values()):
            self._renewal.ring()  # the coordinator went back; all who are not listed would claim
            return ROUND_MS
        self._say_how_it_is(membership, facts)
        living[self.name] = membership.member
        self._hand_overs.look_again()
        owners = self._sight.owners()
        self._forget_gone(living)
        self._view = View(living, owners)
        waits = self._clock.now_us() < self._settled_us
        is_complete = not self.planned or self.coordinator.get(ownership.COMPLETE) is not None
        seen = self.name, session, self._view, self._slots
        plan = ownership.plan(*seen, waits=waits, planned=self.planned, is_complete=is_complete)
        served = self._served()
        drop = set(plan.drop)  # mostly all that others have
        for slot in drop.intersection(self._mine):
            self._mine.pop(slot, None)
        dropped = [name for slot in sorted(drop & served.keys()) for name in served.pop(slot)]
        self._hand_overs.drop(broker, dropped)
        taken = self._claims.claim_all(plan.claim, session, self._view.owners)
        if taken:
            log.info("node %s has taken %d slots over", self.name, len(taken))
        mine = [slot for slot in (*plan.keep, *taken) if not self._is_given(slot)]
        if any(slot not in self._mine for slot in mine):
            # Whoever had them may have served by changes that nobody has told here yet.
            self._read_catalogue(catalogue, broker)
        with self._serving:
            if self._membership is not membership or not membership.is_valid():
                return ROUND_MS
            laid_out = self._laid_out()
            for slot in [slot for slot in mine if not self._is_given(slot)]:  # since a moment ago
                self._mine[slot] = self._view.owners[slot].revision
                here = set(served.get(slot, ()))
                for name in [name for name in laid_out.served(slot) if name not in here]:
                    broker.take(name)
            on_hand = [slot for slot in plan.hand_over if not self._is_given(slot)]
            self._mine |= (given := {slot: self._view.owners[slot].revision for slot in on_hand})
        is_left = self._leftovers.let_go(broker, catalogue, {*mine, *given})
        self._hand_overs.begin(broker, given, self._next_owners() if given else {})
        staying = [member.node for member in living.values() if not member.leaving]
        self._leftovers.bury(broker, catalogue, staying, self._slots)
        for bell in list(self._looking):
            bell.ring()
        if len(taken) < len(plan.claim) or not is_left or waits or not is_complete:
            return AGAIN_MS
        look_ms = (self.clocks.next_us - self._clock.now_us()) // 1_000
        return max(AGAIN_MS, min(ROUND_MS, look_ms))

    def _read_catalogue(self, catalogue: ClusterCatalogue, broker: Broker) -> None:
        """Serve by the catalogue of now. While it cannot be read, what is served goes on."""
        try:
            changed = catalogue.news()
            if changed is None or changed or self._is_behind:
                changed, self._is_behind = None if self._is_behind else changed, True
                broker.catalogue_changed(changed)
                self._is_behind = False
        except DejaQError as error:
            self._topics_changed = True
            log.warning("node %s can't read the catalogue: %s", self.name, error)

    def _say_how_it_is(self, membership: Membership, facts: list[Fact]) -> None:
        """Take nothing, or let go of everything, if this broker's clock is apart; and tell others
        to send nothing while the disk of its server is short."""
        before = membership.member
        after = self._with_clock(before, facts)
        is_short = self.disk is not None and self.disk.is_short
        after = replace(after, short=is_short, leaving=after.leaving or self._leaving)
        said = (before.comparing, before.apart, before.leaving, before.short)
        if (after.comparing, after.apart, after.leaving, after.short) != said:
            membership.change(after)

    def _with_clock(self, member: Member, facts: list[Fact]) -> Member:
        assert self._broker is not None
        return self.clocks.judged(member, facts, self._broker.clock, self._broker.settings.clock)

    @property
    def disks(self) -> Disks:
        """Room on the disks of the servers beside brokers, as members say and as is seen here."""
        return disks_of(self.name, self._view.members.values(), self.disk)

    @property
    def is_member(self) -> bool:
        """True while others see this broker."""
        return self._membership is not None and self._membership.is_valid()

    @property
    def clock_apart_us(self) -> int:
        """How far this broker's clock is from the others' for certain; 0 = it agrees."""
        membership = self._membership
        return 0 if membership is None else membership.member.apart_us

    def _served(self) -> dict[int, list[str]]:
        """What this broker serves, by slot."""
        served: dict[int, list[str]] = {}
        if self._broker is not None:
            slot_of = self._laid_out().slot
            for name in [runtime.served_as for runtime in self._broker.runtimes()]:
                served.setdefault(slot_of(name), []).append(name)
        return served

    # --- giving ---------------------------------------------------------------------------------

    def _topics_of(self, slot: int) -> list[str]:
        return self._served().get(slot, [])

    def _next_owners(self, *, leaves: bool = False) -> dict[int, str]:
        seen = self.name, self._view, self._slots, self.planned
        return ownership.next_owners(*seen, leaves=leaves)

    def _is_given(self, slot: int) -> bool:
        return self._hand_overs.has(slot, self._view.owners[slot].revision)

    def _release(self, slot: int, revision: int) -> None:
        """Say that a slot is nobody's. Raises Unavailable."""
        with self._serving:
            if self._mine.get(slot) == revision:
                del self._mine[slot]
        owner = self._view.owners.get(slot)
        if owner is not None:
            self._claims.release(slot, owner, revision)
