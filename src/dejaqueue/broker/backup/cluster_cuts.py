"""Cuts of what brokers keep on servers: one moment of all partitions and of the catalogue.

One broker takes them. In a turn all brokers that own something begin it, and say where their
partitions ended; then all are told that all have begun. No answer to what comes behind leaves a
broker in between, so nothing that is within what they said was caused by anything that is not.

    look     is there anybody? asked ahead of a turn, once one was given up
    begin    say where partitions end, and keep answers from now on
    end      answers go on; says whether all of them waited until now

Room: broker. On the archiver's thread.
Holds: a cut is given only if every owner kept its answers from its begin until all had begun, if
nobody else came to own anything and the catalogue did not change meanwhile, and if it has each
partition of each topic that is used; who is silent holds the answers of the others up once,
for PATIENCE_SECONDS, and is asked for a sign of life before the next turn.
See: shard/turn_hold.py, where answers wait; record_archiver.py, who asks for cuts;
docs/adr/0095-a-turn-of-several-brokers-holds-answers.md, why this is a cut.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, Protocol

from dejaqueue.backup.strands import LogCut
from dejaqueue.broker.backup.catalogue_slices import CatalogueSlices
from dejaqueue.broker.backup.cut import CutPort
from dejaqueue.broker.shard.turn_hold import TurnHold, log_name
from dejaqueue.broker.topic.cluster_port import BackupTurns, ClusterPort, Owners
from dejaqueue.broker.topic.peers import TURN, Peers
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.journal.segments.store import OWN_NAME

PATIENCE_SECONDS: Final = 0.25
"""So long for the answers of all brokers to one step; less than answers are kept."""
AGAIN_US: Final = 100_000
AGAIN_US_MAX: Final = 10_000_000
"""Between turns that are given up, twice as long each time."""
CLOCKS_MIN: Final = 2
"""Of a cluster, whichever of its brokers own something just now."""

Answer = dict[str, Any]
log = logging.getLogger("dejaqueue.backup")


class CutsPort(CutPort, Protocol):
    """A broker, as who takes cuts sees it."""

    node: ClusterPort | None
    turn_hold: TurnHold

    @property
    def peers(self) -> Peers | None: ...  # noqa: D102


class ClusterCuts:
    """Takes cuts of a cluster, or of a broker that is alone.

    Args:
        turns: what is agreed on with other brokers; None = there are none, or not yet.

    Attributes:
        is_due: there may be something that no cut has yet.
        is_missing: a partition of a topic that is used was not read by anybody.
        chain: to which another broker archives, as far as it differs; "" = none does.
    """

    def __init__(self, broker: CutsPort, turns: Callable[[], BackupTurns | None]) -> None:
        self._broker, self._turns = broker, turns
        self._again_us = self._failures = 0
        self._known: tuple[int, frozenset[str]] | None = None
        self._given_up: dict[int, tuple[str, str, int]] | None = None
        """Who owned what when a turn was given up: others may be quicker to answer."""
        self._probes: dict[str, Future[Answer]] = {}
        self.is_due = self.is_missing = self._is_settled = False
        self.chain = ""

    def taken(
        self, catalogue: CatalogueSlices, chain: str, last: Mapping[str, int]
    ) -> LogCut | None:
        """A cut; None = there is nothing new, or none could be taken now.

        Args:
            chain: to which all are to archive.
            last: where the last cut ended.

        Raises:
            Unavailable: the catalogue or the coordinator cannot be asked. JournalDamaged.
        """
        self.is_due, clock = True, self._broker.clock
        owners = self._owners()
        are_known = owners is None or owners.slots == self._given_up
        if are_known and clock.now_us() < self._again_us:
            return None
        if owners is not None and not (owners.is_whole and owners.slots):
            return None
        revision = catalogue.tail()
        logs = self._logs(revision)
        if logs is None:
            return None
        others = {} if owners is None else self._others(owners)
        if self._failures and not self._are_there(others):
            self._give_up("a broker is silent", owners)
            return None
        # What is acknowledged later in this millisecond is in the next turn.
        at_ms = clock.utc_ms() - 1
        ends = self._turn(others, chain)
        if ends is None:
            self._give_up("a broker did not answer in time", owners)
            return None
        self._failures = 0
        self.is_missing = not logs <= ends.keys()
        if self.is_missing:
            return None
        found = {OWN_NAME: revision, **{name: ends[name] for name in logs}}
        is_same = found == last
        if is_same and self._is_settled:
            self.is_due = False
            return None
        if catalogue.tail() != revision or not self._are_same(owners):
            return None
        self.is_due = False
        # What came while the brokers heard of the turn is in it, though it is later than the cut
        # says: when nothing more comes, one more cut says that all is there.
        self._is_settled = is_same
        clocks = 1 if owners is None else max(CLOCKS_MIN, len(owners.urls))
        return LogCut(at_ms, found, clocks)

    def _give_up(self, why: str, owners: Owners | None) -> None:
        self._given_up = None if owners is None else owners.slots
        self._failures += 1
        pause_us = min(AGAIN_US << min(self._failures, 16), AGAIN_US_MAX)
        self._again_us = self._broker.clock.now_us() + pause_us
        log.info("no cut of the cluster: %s; the next try is in %d ms", why, pause_us // 1_000)

    # --- what there is ------------------------------------------------------------------------

    def _owners(self) -> Owners | None:
        """Who serves what; None = this broker is alone. Raises Unavailable."""
        if self._broker.node is None:
            return None
        turns = self._turns()
        if turns is None:
            raise Unavailable("this broker has not joined its cluster yet", 100)
        return turns.owners()

    def _are_same(self, owners: Owners | None) -> bool:
        """Whether nobody else has come to own anything."""
        now = self._owners()
        return owners is None or (now is not None and now.slots == owners.slots)

    def _others(self, owners: Owners) -> dict[str, str]:
        """Where brokers are that own something, by name, but for this one."""
        turns = self._turns()
        here = "" if turns is None else turns.node
        names = {owner for owner, _, _ in owners.slots.values()}
        return {name: owners.urls[name] for name in names if name != here}

    def _logs(self, revision: int) -> frozenset[str] | None:
        """Partitions of all topics that are used, as of a revision of the catalogue; None = that is
        not the one of now, or what a topic had decided is just being written down."""
        if self._known is None or self._known[0] != revision:
            state = self._broker.catalogue_state()
            if any(row.is_used and not row.is_closed for row in state.leaving.values()):
                return None
            if state.revision != revision:
                return None
            names = (
                log_name(row.number, partition)
                for row in state.rows.values()
                if row.is_used
                for partition in range(row.topic.partitions)
            )
            self._known = revision, frozenset(names)
        return self._known[1]

    # --- a turn -------------------------------------------------------------------------------

    def _turn(self, others: Mapping[str, str], chain: str) -> dict[str, int] | None:
        """Where all partitions ended when all brokers had begun a turn; None = not all have, or one
        did not keep its answers for so long."""
        turn, hold = secrets.token_hex(8), self._broker.turn_hold
        begin = {"step": "begin", "turn": turn, "chain": chain, "missing": self.is_missing}
        asked = self._ask(others, begin)
        try:
            ends: dict[str, int] | None = hold.begin(turn)
        except Unavailable:  # another broker takes this one for a member of its turn
            ends = None
        begun = self._answers(asked)
        ending = self._ask(others, {"step": "end", "turn": turn})
        is_kept = hold.end(turn)
        ended = self._answers(ending)
        if ends is None or begun is None or ended is None or not is_kept:
            return None
        if not all(answer.get("kept") is True for answer in ended):
            return None
        chains = {str(answer.get("chain", "")) for answer in begun} - {chain, ""}
        self.chain = next(iter(chains), "")
        for answer in begun:
            for name, position in dict(answer["ends"]).items():
                if name in ends:  # of two owners one is about to hear that it is none
                    return None
                ends[name] = int(position)
        return ends

    def _are_there(self, others: Mapping[str, str]) -> bool:
        """Whether all answer, asked for nothing: so nobody waits for one that does not."""
        for name, url in others.items():
            before = self._probes.get(name)
            if before is None or before.done():  # one at a time waits for who is silent
                self._probes |= self._ask({name: url}, {"step": "look"})
        probes = {name: self._probes[name] for name in others}
        if self._answers(probes) is None:
            return False
        self._probes = {}
        return True

    def _ask(self, others: Mapping[str, str], body: Answer) -> dict[str, Future[Answer]]:
        peers = self._broker.peers
        if peers is None and others:
            failed: Future[Answer] = Future()
            failed.set_exception(Unavailable("there is no way to other brokers", 1_000))
            return dict.fromkeys(others, failed)
        return {} if peers is None else {n: peers.ask(url, TURN, body) for n, url in others.items()}

    def _answers(self, asked: Mapping[str, Future[Answer]]) -> list[Answer] | None:
        """What all say; None = one does not, in time."""
        clock, found = self._broker.clock, list[Answer]()
        until_us = clock.now_us() + round(PATIENCE_SECONDS * 1e6)
        for name, answer in asked.items():
            try:
                found.append(answer.result(max(0, until_us - clock.now_us()) / 1e6))
            except TimeoutError:
                log.info("node %s does not answer in a turn of the archive", name)
                return None
            except DejaQError as error:
                log.info("node %s in a turn of the archive: %s", name, error)
                return None
        return found
