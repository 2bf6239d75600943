"""The coordinator: decisions of transactions on their way between home and participants.

Room: broker. Any thread may call it and nothing here blocks: what is asked of a partition runs on
its worker, and answers come by callback, on any thread.
Holds: a participant hears of a decision only after it is durable in the home; whoever waits is
answered once; what could not be told now is told again, by the home.
See: home.py for what partitions do; peers.py for the way to other brokers; docs/adr/0025.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.peers import ASK, TELL, Peers
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.broker.transactions import home
from dejaqueue.broker.transactions.home import RETRY_MS, Decision
from dejaqueue.broker.transactions.names import Participant, TransactionName
from dejaqueue.broker.transactions.record import Record
from dejaqueue.catalogue.state import TopicRow
from dejaqueue.errors import (
    DejaQError,
    Elsewhere,
    InternalError,
    Refused,
    TopicUnknown,
    Unavailable,
)


class Coordinator:
    """Tells decisions, and asks for them.

    Args:
        served: the served topic, or shard, of a name, or TopicUnknown, or Elsewhere.
        has: whether there is such a partition, served here or not.
        shard_of: what is served with a partition of a topic: the topic, or a shard of it.
        peers: the way to other brokers of a cluster; None = there is none.
        leaving: a topic that is being deleted, by its name; None = nothing is left of it.
        is_over: whether a transaction's time is, by the clock of any broker.
    """

    def __init__(
        self,
        served: Callable[[str], ServedTopic],
        has: Callable[[str, int], bool],
        shard_of: Callable[[str, int], str],
        peers: Callable[[], Peers | None] = lambda: None,
        leaving: Callable[[str], TopicRow | None] = lambda name: None,
        is_over: Callable[[TransactionName], bool] = lambda name: True,
    ) -> None:
        self.served = served
        self.has = has
        self._shard_of = shard_of
        self._peers = peers
        self._leaving, self._is_over = leaving, is_over
        self._lock = threading.Lock()
        # Under the lock.
        self._calls: set[_Call] = set()
        self._untold: dict[Participant, list[str]] = {}

    def close(self) -> None:
        """The workers have stopped: whoever waits is told so."""
        for call in list(self._calls):
            self.finish(call, Unavailable("the broker is stopping", 1_000))

    def begin(
        self, name: TransactionName, remember: Callable[[PartitionCore], Decision], commit: bool
    ) -> Future[None]:
        """Decide in the home, then tell the others. Raises TopicUnknown, Unavailable."""
        call = _Call(self, name, commit)
        if not self.has(name.topic, name.partition):
            left = self._left(name)
            with self._lock:
                self._calls.add(call)
            call.is_decided(left)
            return call.done
        served = self.home_of(name)
        with self._lock:
            self._calls.add(call)
        served.change(name.partition, remember).add_done_callback(call.home_decided)
        return call.done

    def finish(self, call: _Call, error: BaseException | None) -> None:
        """Answer a call, unless it was answered before."""
        with self._lock:
            if call not in self._calls:
                return
            self._calls.discard(call)
        if error is None or isinstance(error, DejaQError):
            _settle(call.done, error)
        else:
            _settle(call.done, InternalError(f"{type(error).__name__}: {error}"))

    # --- homes that are gone --------------------------------------------------------------------

    def _of_gone(self, name: TransactionName) -> bool | None:
        """As `recall`, of a home whose topic is gone.

        That nothing was committed there is said when nobody can commit any more: when its owner
        has let go, and, as a topic may be made of its name, when the time is over.
        """
        row = self._leaving(name.topic)
        if row is not None:
            if name.topic in row.waits or self._shard(row, name) in row.waits:
                return None
            decisions = {text: (commit, record) for text, commit, record in row.decided}
            commit = home.said(decisions, name)
            if commit is not None:
                return commit
        return False if self._is_over(name) else None

    def _left(self, name: TransactionName) -> Decision:
        """What was decided in a home whose topic is gone. Raises TopicUnknown, Unavailable."""
        row = self._leaving(name.topic)
        if row is None:
            raise TopicUnknown(name.topic)
        if name.topic in row.waits or self._shard(row, name) in row.waits:
            raise Unavailable(f"topic {name.topic} is being deleted", RETRY_MS)
        for text, commit, record in row.decided:
            if text == name.text:
                return Decision(commit, Record.parse(record))
        raise TopicUnknown(name.topic)

    @staticmethod
    def _shard(row: TopicRow, name: TransactionName) -> str:
        shards = row.topic.shards
        return shards[name.partition % len(shards)]

    def tell_left(self, row: TopicRow, then: Callable[[BaseException | None], None]) -> None:
        """Tell what was decided in a topic that is gone, to all who may not know it.

        Args:
            then: called once, on any thread: with why one of them could not be told, or None.
        """
        together = _JoinedOutcome(len(row.decided), then)
        for text, commit, record in row.decided:
            name, decision = TransactionName.parse(text), Decision(commit, Record.parse(record))
            _SpreadDecision(self, name, decision, together.answered).begin()

    # --- what a partition asks for itself (staging.py) ------------------------------------------

    def resolve(self, text: str, topic: str, partition: int, then: Callable[[bool], None]) -> None:
        """Ask the home what became of a transaction, and do so in this partition.

        Args:
            then: called on any thread; False = not decided, or the home could not be asked.
        """

        def answered(commit: bool | None) -> None:
            if commit is None:
                then(False)
                return
            decision = Decision(commit, Record())
            self.have_done((topic, partition), text, decision, lambda error: then(error is None))

        self.recall(text, answered)

    def tell_again(self, text: str, then: Callable[[bool], None]) -> None:
        """Tell a decision to those who may not know it. `then` as for `resolve`."""
        try:
            name = TransactionName.parse(text)
            served = self.home_of(name)
        except DejaQError:
            then(False)
            return

        def looked_up(future: Future[Decision | None]) -> None:
            decision = None if future.exception() is not None else future.result()
            if decision is None:
                then(False)
            else:
                _SpreadDecision(self, name, decision, lambda error: then(error is None)).begin()

        look_up = partial(home.known_decision, name=name)
        served.change(name.partition, look_up).add_done_callback(looked_up)

    def take_untold(self, topic: str, partition: int) -> list[str]:
        """Transactions decided in this home that not everybody could be told; each once."""
        if not self._untold:  # as good as ever: no lock for each step of each partition
            return []
        with self._lock:
            return self._untold.pop((topic, partition), [])

    def note_untold(self, name: TransactionName) -> None:
        """Not everybody could be told of a decision: its home tells them again, by and by."""
        try:
            served = self.home_of(name)
        except DejaQError:
            return  # the next start tells everybody again
        with self._lock:
            self._untold.setdefault((name.topic, name.partition), []).append(name.text)
        served.partitions[name.partition].ring()

    # --- between partitions -------------------------------------------------------------------

    def have_done(
        self,
        participant: Participant,
        text: str,
        decision: Decision,
        then: Callable[[BaseException | None], None],
    ) -> None:
        """Have a participant do what was decided, here or at the broker that serves it.

        Args:
            then: called on any thread when that is durable, or with why it is not known to be.
        """
        try:
            served = self.served_partition(*participant)
        except Elsewhere as other:
            topic, partition = participant
            body = {
                "transaction": text,
                "place": f"{topic}/{partition}",
                "commit": decision.commit,
                # Whom else to tell is the home's business.
                "record": replace(decision.record, places=()).to_text(),
            }
            self._ask_far(other, TELL, body, lambda _, error: then(error))
            return
        except DejaQError as error:
            then(error)
            return
        _AppliedDecision(served, participant[1], text, decision, then).go_on()

    def all_know(self, name: TransactionName) -> None:
        """Note in the home that nobody has to be told any more."""
        try:
            self.home_of(name).change(name.partition, partial(home.complete, name=name))
        except DejaQError:
            return  # the next start tells everybody again

    def recall(self, text: str, then: Callable[[bool | None], None]) -> None:
        """What became of a transaction, by its home; None = undecided, or it cannot be asked."""
        try:
            name = TransactionName.parse(text)
            if not self.has(name.topic, name.partition):
                then(self._of_gone(name))
                return
            served = self.home_of(name)
        except Elsewhere as other:

            def far(answer: dict[str, Any], error: BaseException | None) -> None:
                # Also if its topic is gone: what that means is said by the catalogue alone.
                then(None if error is not None else answer.get("commit"))

            self._ask_far(other, ASK, {"transaction": text}, far)
            return
        except DejaQError:
            then(None)
            return

        def near(future: Future[bool | None]) -> None:
            then(None if future.exception() is not None else future.result())

        recall = partial(home.recall, name=name)
        served.change(name.partition, recall).add_done_callback(near)

    def _ask_far(
        self,
        other: Elsewhere,
        action: str,
        body: dict[str, Any],
        then: Callable[[dict[str, Any], BaseException | None], None],
    ) -> None:
        """Have the broker that serves it do something; `then` on any thread."""
        peers = self._peers()
        if peers is None or not other.url:
            then({}, other)
            return

        def answered(future: Future[dict[str, Any]]) -> None:
            wrong = other if future.cancelled() else future.exception()  # it is gone meanwhile
            then({} if wrong is not None else future.result(), wrong)

        peers.ask(other.url, action, body).add_done_callback(answered)

    def home_of(self, name: TransactionName) -> ServedTopic:
        """The served topic with the home of a transaction. Raises as `served_partition`."""
        return self.served_partition(name.topic, name.partition)

    def served_partition(self, topic: str, partition: int) -> ServedTopic:
        """The served topic with this partition. Raises TopicUnknown, Elsewhere, Unavailable."""
        served = self.served(self._shard_of(topic, partition))
        if partition not in served.partitions:  # it was added elsewhere just now
            raise Unavailable(f"partition {partition} of topic {topic} is being made", 50)
        return served


# --- one state for each thing that is under way -------------------------------------------------


class _Call:
    """A commit or an abort that somebody waits for: decided, told, answered.

    Attributes:
        done: what the caller waits for.
    """

    def __init__(self, coordinator: Coordinator, name: TransactionName, wanted: bool) -> None:
        self._coordinator = coordinator
        self._name = name
        self._wanted = wanted
        self.done: Future[None] = Future()

    def home_decided(self, future: Future[Decision]) -> None:
        """The home has the decision durable, or failed."""
        error = future.exception()
        if error is not None:
            self._coordinator.finish(self, error)
        else:
            self.is_decided(future.result())

    def is_decided(self, decision: Decision) -> None:
        """It is decided so, durably."""
        _SpreadDecision(
            self._coordinator, self._name, decision, partial(self._all_answered, decision)
        ).begin()

    def _all_answered(self, decision: Decision, error: BaseException | None) -> None:
        """Everybody knows it, or somebody could not be told."""
        text, word = self._name.text, "committed" if decision.commit else "aborted"
        outcome: DejaQError | None = None
        if error is not None:
            self._coordinator.note_untold(self._name)
            outcome = Unavailable(
                f"transaction {text} is {word}, but not every partition could be told yet "
                f"({error}); the same call again waits for them",
                RETRY_MS,
            )
        elif decision.commit != self._wanted:
            why = "" if decision.commit else ": its time was over, or it was aborted before"
            outcome = Refused(f"transaction {text} was {word}{why}")
        self._coordinator.finish(self, outcome)


class _JoinedOutcome:
    """Answers that are waited for together.

    Args:
        count: how many.
        then: called once, on any thread: with one of the errors, or None.
    """

    def __init__(self, count: int, then: Callable[[BaseException | None], None]) -> None:
        self._waiting_for, self._then = count, then
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        if not count:
            then(None)

    def answered(self, error: BaseException | None) -> None:
        """One of them is there."""
        with self._lock:
            self._error = self._error or error
            self._waiting_for -= 1
            if self._waiting_for:
                return
        self._then(self._error)


class _SpreadDecision:
    """A decision on its way to all who take part; noted in the home once all of them know it.

    Args:
        then: called once, on any thread: with why one of them could not be told, or None.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        name: TransactionName,
        decision: Decision,
        then: Callable[[BaseException | None], None],
    ) -> None:
        self._coordinator = coordinator
        self._name = name
        self._decision = decision
        self._then = then
        self._lock = threading.Lock()
        self._waiting_for = len(decision.record.places)
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Tell all at once; answers come in any order."""
        participants = self._decision.record.places
        if not participants:
            self._then(None)
        for participant in participants:
            self._coordinator.have_done(
                participant, self._name.text, self._decision, self._answered
            )

    def _answered(self, error: BaseException | None) -> None:
        with self._lock:
            # A topic that is gone took with it what was staged there.
            if self._error is None and not isinstance(error, TopicUnknown):
                self._error = error
            self._waiting_for -= 1
            if self._waiting_for:
                return
        if self._error is None:
            self._coordinator.all_know(self._name)
        self._then(self._error)


class _AppliedDecision:
    """A decision that is done in one partition, step by step: branches may be many.

    Args:
        then: called once, on the partition's worker: with why it was not done, or None.
    """

    def __init__(
        self,
        served: ServedTopic,
        partition: int,
        text: str,
        decision: Decision,
        then: Callable[[BaseException | None], None],
    ) -> None:
        self._served = served
        self._partition = partition
        self._do = partial(
            home.do_decide, text=text, commit=decision.commit, record=decision.record
        )
        self._then = then

    def go_on(self) -> None:
        """Do as much as one step of the partition should take."""
        self._served.change(self._partition, self._do).add_done_callback(self._did)

    def _did(self, future: Future[bool]) -> None:
        error = future.exception()
        if error is None and future.result():
            self.go_on()
        else:
            self._then(error)


def _settle(future: Future[None], error: BaseException | None) -> None:
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
