"""Clocks: how far the clocks of the cluster's brokers are apart, as one of them can tell.

Each broker writes its time into a fact now and then, and reads those of the others. What it reads
was written before it looks now, and came there after it last looked; how long it was on its way is
in what the other one writes next. That bounds how far the other clock is
off, from both sides, without anybody having to be asked, as narrowly as it looks often. The next
bounds lie elsewhere, since brokers look at uneven intervals, so that all of them together are
narrower still. A broker that knows of nobody whose clock agrees with its own looks more often until
it knows all of them well: when its clock is put right, that shows at its next look. So do all while
one has come that has not compared yet, which takes nothing until then.

Room: cluster. Called by the node's rounds; reads no clock but those it is given.
Holds: a clock is called apart only if it is for certain, by more than so much; who is right is what
most brokers say, and of two that differ the one that was there first; who was apart stays so until
somebody agrees; who comes takes nothing before it has compared, but for those who do not answer. A
process that never agreed with anybody waits for those that were there before it, too: the first one
after the coordinator was away may be the only one whose clock is wrong.
See: node.py; clock.py for jumps that a broker sees by itself; ADR 0026.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dejaqueue import limits
from dejaqueue.broker import news
from dejaqueue.clock import Clock
from dejaqueue.cluster.members import Member
from dejaqueue.coordinator.interface import Coordinator, Fact
from dejaqueue.settings import ClockSettings

log = logging.getLogger("dejaqueue.cluster")

PREFIX = "clocks/"
EXCHANGE_MS_MIN, EXCHANGE_MS_MAX = 1_000, 2_000
"""Bounds of the time between two looks at each other's clocks, which is drawn each time. These and
the next ones are more where requests are paid for (`Coordinator.request_weight`)."""
UNSURE_MS_MIN, UNSURE_MS_MAX = 100, 300
"""The same while nobody is known to agree, and some clock is not known well; and while somebody
compares. A look knows a clock to within the time since the look before: these do as soon as the
other broker has written."""
UNKNOWN_US = 3_600_000_000
"""A bound that says nothing."""
WIDENS_PPM = 2_000
"""Bounds widen by this part of the time since: clocks run apart, and are put right."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a clock is ahead of another one, microseconds: at least, and at most.

    Attributes:
        at_us: elapsed time when that was seen.
    """

    least_us: int
    most_us: int
    at_us: int

    def seen_from(self, ahead_us: int) -> Bounds:
        """How far the clock is ahead of one that is so far ahead of the other one itself."""
        return Bounds(self.least_us - ahead_us, self.most_us - ahead_us, self.at_us)

    def narrowed(self, new: Bounds) -> Bounds:
        """Both together; the new ones, if they contradict each other."""
        widened_us = (new.at_us - self.at_us) * WIDENS_PPM // 1_000_000
        least_us = max(new.least_us, self.least_us - widened_us)
        most_us = min(new.most_us, self.most_us + widened_us)
        return Bounds(least_us, most_us, new.at_us) if least_us <= most_us else new

    @property
    def apart_us(self) -> int:
        """How far they are apart for certain; ahead is positive."""
        return max(self.least_us, 0) or min(self.most_us, 0)


def _somebody_agrees(bounds: Iterable[Bounds | None], limit_us: int) -> bool:
    return any(b is not None and abs(b.least_us) <= limit_us >= abs(b.most_us) for b in bounds)


class ClockComparison:
    """What one broker knows of the clocks of the others.

    Args:
        node: its name.
        elapsed: elapsed time.
        lease_ms: a broker that wrote nothing for this long is no member any more.

    """

    def __init__(self, node: str, coordinator: Coordinator, elapsed: Clock, lease_ms: int) -> None:
        self._node = node
        self._coordinator = coordinator
        self._elapsed = elapsed
        self._lease_us = lease_ms * 1_000
        weight = coordinator.request_weight
        self._exchange_ms_min = EXCHANGE_MS_MIN * weight
        self._exchange_ms_max = EXCHANGE_MS_MAX * weight
        self._fresh_us = self._lease_us
        if weight > 1:  # who is alive has written within this, not within a lease
            self._fresh_us = max(self._lease_us, 2 * self._exchange_ms_max * 1_000)
        self._unsure_ms_min, self._unsure_ms_max = UNSURE_MS_MIN * weight, UNSURE_MS_MAX * weight
        self._written: dict[str, tuple[str, int]] = {}
        self._absent_us: dict[str, int] = {}
        """Of what was read last of each: when it was not there yet, in elapsed time."""
        self._stamped: tuple[int, int] | None = None
        """The time that was written last, and how long that took; None = whether it is there is
        not known."""
        self._looked_us = -1
        self._next_us = 0
        self._ahead_us = 0
        """Of this broker's clock: how far it is ahead of elapsed time."""
        self._bounds: dict[str, Bounds] = {}
        """Of the others' clocks, the same."""
        self._dice = random.Random(node)  # not for secrets: looks must not go in step
        self._apart_us = 0
        self._begun_us = 0
        self._has_agreed = False
        """In this process, whose clock is watched since then."""

    @property
    def next_us(self) -> int:
        """When to look again, in elapsed time."""
        return self._next_us

    def bounds(self) -> dict[str, Bounds]:
        """How far the clocks of others are ahead of this broker's, as far as is known, by node."""
        return {node: bounds.seen_from(self._ahead_us) for node, bounds in self._bounds.items()}

    def begin(self) -> None:
        """A life of this broker begins: what it knew of the others before does not count."""
        self._begun_us = self._elapsed.now_us()

    def judged(
        self, member: Member, facts: list[Fact], clock: Clock, settings: ClockSettings
    ) -> Member:
        """This broker's member fact, by what is known of the others' clocks. Raises Unavailable.

        Args:
            member: its fact so far, whether it has joined or not.
            facts: of members.
            clock: this broker's.
        """
        self.look(member.session, clock)
        joined = self.joined(facts, member)
        limit_us = settings.step_ms_max * 1_000
        apart_us = self.apart_us(joined, limit_us)
        comparing = member.comparing and not self._has_compared(joined, limit_us)
        if comparing or any(Member.of(fact).comparing for fact in facts):
            self._look_soon()
        # Who still compares is not counted out: of three that come one after the other the first
        # may be wrong, and the last agree with the second.
        apart = apart_us != 0 and not comparing
        leaving = apart and abs(apart_us) > settings.apart_ms_max * 1_000
        if (apart, leaving) != (member.apart, member.apart and member.leaving):
            news.clock_apart(self._node, apart_us, lets_go=leaving)
        self._has_agreed |= not (comparing or apart)
        return replace(member, comparing=comparing, apart=apart, leaving=leaving, apart_us=apart_us)

    def _has_compared(self, joined: Iterable[str], limit_us: int) -> bool:
        """Whether the clock of each other one is known, or has been waited for long enough.

        Who died without a word is a member for as long as its lease, so that is long enough; and
        each broker that goes its rounds has written twice by then. While nobody agrees, that holds
        for those that are no members, too, and left a stamp.
        """
        well_us = self._well_us(limit_us)
        bounds = self.bounds()
        others = set(joined) - {self._node}
        unknown = {node for node in others if not self._is_known(node, well_us)}
        if not self._has_agreed and not _somebody_agrees(map(bounds.get, others), limit_us):
            unknown |= set(self._written) - others
        wait_us = max(self._lease_us, 2 * EXCHANGE_MS_MAX * 1_000)
        if unknown and self._elapsed.now_us() < self._begun_us + wait_us:
            return False
        if unknown:
            text = "node %s takes topics, though its clock was not compared with that of %s"
            log.warning(text, self._node, ", ".join(sorted(unknown)))
        return True

    def _is_known(self, node: str, well_us: int) -> bool:
        bounds = self._bounds.get(node)
        if bounds is None or bounds.at_us < self._begun_us:
            return False
        apart_us = bounds.seen_from(self._ahead_us).apart_us
        return bounds.most_us - bounds.least_us <= well_us or abs(apart_us) > well_us

    def _well_us(self, limit_us: int) -> int:
        """Bounds that are this far apart at most tell a clock well."""
        return max(limit_us, self._unsure_ms_max * 1_000)

    def _look_soon(self) -> None:
        soon_us = self._dice.randint(self._unsure_ms_min, self._unsure_ms_max) * 1_000
        self._next_us = min(self._next_us, self._elapsed.now_us() + soon_us)

    def look(self, session: str, clock: Clock) -> None:
        """Write this broker's time and read the others', if it is time. Raises Unavailable."""
        now_us = self._elapsed.now_us()
        if now_us < self._next_us:
            return
        again_ms = self._dice.randint(self._exchange_ms_min, self._exchange_ms_max)
        self._next_us = now_us + again_ms * 1_000
        utc_us = clock.utc_us()
        self._ahead_us = utc_us - self._elapsed.now_us()
        before_us, took_us = self._stamped or (0, 0)
        values = {"session": session, "utc_us": utc_us, "before_us": before_us, "took_us": took_us}
        self._stamped = None
        self._coordinator.put(PREFIX + self._node, json.dumps(values).encode())
        began_us = self._elapsed.now_us()
        self._stamped = utc_us, began_us - now_us
        self._read(self._coordinator.list(PREFIX))
        self._looked_us = began_us

    def _read(self, facts: Iterable[Fact]) -> None:
        now_us = self._elapsed.now_us()
        for fact in facts:
            node = fact.key.removeprefix(PREFIX)
            values = json.loads(fact.value)
            written = values["session"], values["utc_us"]
            before = self._written.get(node)
            if node == self._node or written == before:
                continue
            self._written[node] = written
            is_known = before is not None and before[0] == written[0] and self._looked_us >= 0
            # Of one that is seen for the first time it is known that it is alive.
            absent_us = self._looked_us if is_known else now_us - self._fresh_us
            new = Bounds(written[1] - now_us, written[1] - absent_us, now_us)
            if before is not None and is_known and "took_us" in values:
                # What comes late through the coordinator must not pass for a clock that is behind.
                most_us = new.least_us + UNKNOWN_US
                if values["before_us"]:
                    was_read = values["before_us"] == before[1]
                    before_absent_us = self._absent_us[node] if was_read else absent_us
                    most_us = values["before_us"] - (before_absent_us - values["took_us"])
                new = Bounds(new.least_us, most_us, now_us)
            self._absent_us[node] = absent_us
            old = self._bounds.get(node) if is_known else None
            self._bounds[node] = new if old is None else old.narrowed(new)

    def joined(self, facts: Iterable[Fact], own: Member) -> dict[str, int]:
        """When each member came that does not say itself that it is apart; as `apart_us` takes it.

        A fact that an earlier life of a broker left says nothing of the clock of the next one: who
        came back with another clock would be the one that was there first.

        Args:
            facts: of members.
            own: this broker's, whether it has joined or not; who is to come is the last, if it was
                not there before.
        """
        found = {}
        for fact in facts:
            member = Member.of(fact)
            session, _ = self._written.get(member.node, (member.session, 0))
            session = own.session if member.node == self._node else session
            if not member.apart and member.session == session:
                found[member.node] = member.place or fact.revision
        found.setdefault(self._node, own.place or limits.INSTANT_MS_MAX)
        return found

    def apart_us(self, joined: Mapping[str, int], limit_us: int) -> int:
        """How far this broker's clock is from that of the cluster; 0 = it agrees, as far as is
        known.

        Args:
            joined: this broker, and members that do not say themselves that they are apart; and
                something that rises with the time when they came.
            limit_us: clocks that are apart by no more agree.
        """
        bounds = self.bounds()
        others = {node: bounds[node] for node in joined if node in bounds}
        apart = {n: b.apart_us for n, b in others.items() if abs(b.apart_us) > limit_us}
        agrees = _somebody_agrees(others.values(), limit_us)
        first = min(joined, key=lambda node: joined[node], default=self._node)
        is_half = 2 * len(apart) == len(joined)
        if 2 * len(apart) > len(joined) or (is_half and first in apart):
            far = sorted(apart.values())
            self._apart_us = -far[len(far) // 2]
        elif agrees:
            self._apart_us = 0
        # Else nobody agrees: that the others are gone does not make a wrong clock right.
        well_us = self._well_us(limit_us)
        if not agrees and any(b.most_us - b.least_us > well_us for b in others.values()):
            self._look_soon()
        return self._apart_us

    def described(self, member: Member) -> dict[str, object]:
        """What an operator sees of a member's clock: by how many milliseconds it is ahead of this
        broker's, at least and at most, None = not known; and whether it says itself that it is
        apart, or compares yet."""
        bounds = self.bounds().get(member.node)
        if member.node == self._node:
            bounds = Bounds(0, 0, 0)
        return {
            "ahead_ms_min": None if bounds is None else bounds.least_us // 1_000,
            "ahead_ms_max": None if bounds is None else -(-bounds.most_us // 1_000),
            "apart": member.apart,
            "comparing": member.comparing,
        }

    def forget(self) -> None:
        """Leave nothing behind. Raises Unavailable."""
        self._coordinator.delete(PREFIX + self._node)
