"""Transactions: what was staged in many partitions counts in all of them, or in none (rule 12).

Room: broker. Any thread may call it and nothing here blocks: what is asked of a partition runs on
its worker, and answers come as futures.
Holds: one decision per transaction, durable in its home before any participant hears of it; a home
commits nothing once the transaction's time is over.
See: staging.py for the participants' side; docs/guides/transactions.md.

    commit = Remember in the home → Decide in every participant → answer; Remember: all know it

The name of a transaction says where its home is and when its time is over, so that there is nothing
to make durable when one begins. A home that does not know a transaction whose time is over says
that it was aborted: its own time never goes back, so no later commit can be let in.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dejaqueue import limits
from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.broker.branches import (
    Place,
    Record,
    check_branches,
    check_epoch,
    decide_family,
    is_committed,
)
from dejaqueue.broker.transaction_names import TransactionName, check_participants, family_of
from dejaqueue.clock import Clock
from dejaqueue.engine.commands import Decide, Remember, Stage
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    InternalError,
    Refused,
    TopicUnknown,
    Unavailable,
)
from dejaqueue.model import check_topic_name
from dejaqueue.wire.descriptors import check_fields

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition
    from dejaqueue.broker.runtime import TopicRuntime

ACTIONS = {
    "begin_transaction": ("topic", "timeout_ms", "branched", "query", "epoch"),
    "commit_transaction": ("transaction", "participants", "branches"),
    "commit_epoch": ("topic", "query", "epoch", "participants", "branches", "until_ms"),
    "abort_transaction": ("transaction", "participants", "branches"),
    "transactions": ("topic",),
}
"""Actions of docs/wire.md, and what their bodies hold."""
RETRY_MS = 1_000
"""Who could not be asked or told is asked or told again after this."""


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a home decided, now or before, and who has to be told."""

    commit: bool
    record: Record


class Transactions:
    """The coordinator of all transactions of a broker.

    Args:
        runtime: the served topic of a name, or TopicUnknown.
    """

    def __init__(self, runtime: Callable[[str], TopicRuntime], clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock
        self._turn = itertools.count()
        self._pending: set[Future[None]] = set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """The workers have stopped: whoever waits is told so."""
        for future in list(self._pending):
            self._finish(future, Unavailable("the broker is stopping", 1_000))

    # --- the client's calls -------------------------------------------------------------------

    def begin(
        self,
        topic: object,
        timeout_ms: object,
        *,
        branched: object = False,
        query: object = None,
        epoch: object = None,
        sender: Sender = NOBODY,
    ) -> dict[str, Any]:
        """A name for a new transaction, whose home is a partition of this topic.

        Args:
            branched: it will be staged in branches.
            query, epoch: it will be, too, and commit_epoch commits them.
            sender: whose it is; nobody else stages in it or decides it.

        Raises:
            BadRequest, TopicUnknown.
        """
        if not isinstance(topic, str):
            raise BadRequest("topic", "the name of a topic", topic)
        if not isinstance(branched, bool):
            raise BadRequest("branched", "true or false", branched)
        is_epoch = query is not None or epoch is not None
        family, partition = family_of(sender), 0
        count = len(self._runtime(topic).partitions)
        if is_epoch:
            family = family_of(sender, *check_epoch(query, epoch))
        else:
            partition = next(self._turn) % count
        high = limits.BRANCHED_MS_MAX if branched or is_epoch else limits.TRANSACTION_MS_MAX
        if not isinstance(timeout_ms, int) or isinstance(timeout_ms, bool):
            raise BadRequest("timeout_ms", "a whole number of milliseconds", timeout_ms)
        if not 1 <= timeout_ms <= high:
            raise BadRequest("timeout_ms", f"from 1 to {high}", timeout_ms)
        began_ms = self._clock.now_ms()
        name = f"{topic}/{partition}/{began_ms}-{timeout_ms}-{family}"
        return {"transaction": name, "until_ms": began_ms + timeout_ms}

    def stage(self, text: str, op: str = "enqueue", sender: Sender = NOBODY) -> Stage:
        """What batches of this transaction carry. Raises BadRequest."""
        name = TransactionName.parse(text, sender)
        most_ms = limits.BRANCHED_MS_MAX if name.branch else limits.TRANSACTION_MS_MAX
        if name.until_ms - name.began_ms > most_ms:
            raise BadRequest("transaction", "a branch of it", text)
        if name.until_ms > self._clock.now_ms() + 2 * most_ms:
            raise BadRequest("transaction", "a name that begin_transaction gave this caller", text)
        if name.branch and op != "enqueue":
            raise BadRequest("op", "enqueue in a branch", op)
        return Stage(text, name.until_ms)

    def decide(
        self,
        text: object,
        participants: object,
        *,
        commit: bool,
        branches: object = None,
        sender: Sender = NOBODY,
    ) -> Future[None]:
        """Commit or abort. Done when every participant has it durable.

        The future fails with Refused if it was decided otherwise before, or too late; with
        Unavailable if it is decided but not everybody could be told yet: the same call again
        gives the same answer.

        Args:
            branches: those that count, if it was staged in branches; the others are aborted.

        Raises:
            BadRequest, TopicUnknown.
        """
        name = TransactionName.parse(text, sender)
        record = Record(tuple(check_participants(participants)))
        if branches is not None:
            record = replace(record, family=name.family, branches=check_branches(branches))
        remember = partial(_remember, name=name, record=record, commit=commit)
        return self._decided(name, remember, commit)

    def commit_epoch(self, body: dict[str, Any], sender: Sender = NOBODY) -> Future[None]:
        """Commit the branches of an epoch of a sink, unless one was committed for it before: then
        they are aborted. Done, and failing, as `decide`.

        Raises:
            BadRequest, TopicUnknown.
        """
        topic = body.get("topic")
        if not isinstance(topic, str):
            raise BadRequest("topic", "the name of a topic", topic)
        query, epoch = check_epoch(body.get("query"), body.get("epoch"))
        until_ms = body.get("until_ms")
        if not isinstance(until_ms, int) or isinstance(until_ms, bool):
            raise BadRequest("until_ms", "when the first branch's time is over", until_ms)
        record = Record(
            tuple(check_participants(body.get("participants"))),
            family_of(sender, query, epoch),
            epoch,
            check_branches(body.get("branches")),
        )
        name = _epochs_of(check_topic_name(topic), query, sender)
        remember = partial(_remember_epoch, name=name, record=record, until_ms=until_ms)
        return self._decided(name, remember, True)

    def _decided(
        self, name: TransactionName, remember: Callable[[Partition], _Decision], commit: bool
    ) -> Future[None]:
        """Decide in the home, then tell the others."""
        home = self._home(name)
        done: Future[None] = Future()
        with self._lock:
            self._pending.add(done)

        def decided(future: Future[_Decision]) -> None:
            wrong = future.exception()
            if wrong is not None:
                self._finish(done, wrong)
                return
            decision = future.result()
            self._tell(
                name, decision, lambda error: self._told(done, name, commit, decision, error)
            )

        home.change(name.partition, remember).add_done_callback(decided)
        return done

    def undecided(self, topic: str) -> list[dict[str, Any]]:
        """The transactions that have something staged in a topic, oldest first. Blocks."""
        runtime = self._runtime(topic)
        looks = [
            runtime.look(number, lambda place: place.engine.staged())
            for number in runtime.partitions.numbers
        ]
        now_ms = self._clock.now_ms()
        rows = []
        for number, look in enumerate(looks):
            for text, (until_ms, messages, acks) in look.result().items():
                name = TransactionName.parse(text)
                row = {"transaction": text, "partition": number, "age_ms": now_ms - name.began_ms}
                rows.append(row | {"left_ms": until_ms - now_ms, "staged": messages, "acked": acks})
        return sorted(rows, key=lambda row: (-int(str(row["age_ms"])), str(row["transaction"])))

    def act(
        self, action: str, body: dict[str, Any], sender: Sender = NOBODY
    ) -> Future[dict[str, Any]]:
        """One of ACTIONS: JSON in, JSON out.

        Raises:
            BadRequest, TopicUnknown. Others come with the future.
        """
        answer: Future[dict[str, Any]] = Future()
        check_fields(body, list(ACTIONS[action]))
        if action == "begin_transaction":
            begin = {"timeout_ms": limits.TRANSACTION_MS_DEFAULT, "topic": None} | body
            begun = self.begin(**begin, sender=sender)
            if "epoch" not in body:
                answer.set_result(begun)
            else:
                self._tell_epoch(body, begun, answer, sender)
        elif action == "transactions":
            topic = body.get("topic")
            if not isinstance(topic, str):
                raise BadRequest("topic", "the name of a topic", topic)
            answer.set_result({"transactions": self.undecided(topic)})
        else:
            if action == "commit_epoch":
                decided = self.commit_epoch(body, sender)
            else:
                decided = self.decide(
                    body.get("transaction"),
                    body.get("participants", []),
                    commit=action == "commit_transaction",
                    branches=body.get("branches"),
                    sender=sender,
                )

            def copy(done: Future[None]) -> None:
                wrong = done.exception()
                if wrong is not None:
                    answer.set_exception(wrong)
                else:
                    answer.set_result({})

            decided.add_done_callback(copy)
        return answer

    def _tell_epoch(
        self,
        body: dict[str, Any],
        begun: dict[str, Any],
        answer: Future[dict[str, Any]],
        sender: Sender,
    ) -> None:
        """Answer with what begin gave, and whether the epoch is committed already."""
        home = _epochs_of(body["topic"], body["query"], sender)

        def looked(future: Future[bool]) -> None:
            wrong = future.exception()
            if wrong is not None:
                answer.set_exception(wrong)
            else:
                answer.set_result(begun | {"committed": future.result()})

        look = partial(is_committed, text=home.text, epoch=body["epoch"])
        self._home(home).look(home.partition, look).add_done_callback(looked)

    # --- between partitions -------------------------------------------------------------------

    def resolve(self, text: str, topic: str, partition: int, then: Callable[[bool], None]) -> None:
        """Ask the home what became of a transaction, and do so in this partition.

        Args:
            then: called on any thread; False = not decided, or the home could not be asked.
        """
        try:
            name = TransactionName.parse(text)
            home = self._home(name)
        except BadRequest:  # its topic is gone, and with it every decision: it was not committed
            self._decide_in(topic, partition, text, False, lambda error: then(error is None))
            return
        except DejaQError:
            then(False)
            return

        def answered(future: Future[bool | None]) -> None:
            commit = None if future.exception() is not None else future.result()
            if commit is None:
                then(False)
            else:
                self._decide_in(topic, partition, text, commit, lambda error: then(error is None))

        home.change(name.partition, partial(_recall, name=name)).add_done_callback(answered)

    def tell_again(self, text: str, then: Callable[[bool], None]) -> None:
        """Tell a decision to those who may not know it. `then` as for `resolve`."""
        try:
            name = TransactionName.parse(text)
            home = self._home(name)
        except DejaQError:
            then(False)
            return

        def read(future: Future[_Decision | None]) -> None:
            decision = None if future.exception() is not None else future.result()
            if decision is None:
                then(False)
            else:
                self._tell(name, decision, lambda error: then(error is None))

        home.change(name.partition, partial(_known, name=name)).add_done_callback(read)

    def _tell(
        self,
        name: TransactionName,
        decision: _Decision,
        then: Callable[[BaseException | None], None],
    ) -> None:
        """Tell all participants, and note in the home when all know it."""
        left = decision.record.places
        if not left:
            then(None)
            return
        waits, lock = len(left), threading.Lock()
        failed: list[BaseException] = []

        def one_knows(error: BaseException | None) -> None:
            nonlocal waits
            with lock:
                if error is not None and not isinstance(error, TopicUnknown):
                    failed.append(error)
                waits -= 1
                if waits:
                    return
            if not failed:
                self._all_know(name)
            then(failed[0] if failed else None)

        for topic, partition in left:
            self._decide_in(
                topic, partition, name.text, decision.commit, one_knows, decision.record
            )

    def _decide_in(
        self,
        topic: str,
        partition: int,
        text: str,
        commit: bool,
        then: Callable[[BaseException | None], None],
        record: Record | None = None,
    ) -> None:
        try:
            runtime = self._check_place(topic, partition)
        except DejaQError as error:
            then(error)
            return
        tell = partial(_do_decide, text=text, commit=commit, record=record or Record())

        def told(future: Future[bool]) -> None:
            wrong = future.exception()
            if wrong is None and future.result():
                runtime.change(partition, tell).add_done_callback(told)
            else:
                then(wrong)

        runtime.change(partition, tell).add_done_callback(told)

    def _all_know(self, name: TransactionName) -> None:
        try:
            self._home(name).change(name.partition, partial(_complete, name=name))
        except DejaQError:
            return  # the next start tells everybody again

    def _told(
        self,
        done: Future[None],
        name: TransactionName,
        wanted: bool,
        decision: _Decision,
        error: BaseException | None,
    ) -> None:
        word = "committed" if decision.commit else "aborted"
        if error is not None:
            self._tell_later(name)
            self._finish(
                done,
                Unavailable(
                    f"transaction {name.text} is {word}, but not every partition could be told "
                    f"yet ({error}); the same call again waits for them",
                    RETRY_MS,
                ),
            )
        elif decision.commit != wanted:
            why = "" if decision.commit else ": its time was over, or it was aborted before"
            self._finish(done, Refused(f"transaction {name.text} was {word}{why}"))
        else:
            self._finish(done, None)

    def _tell_later(self, name: TransactionName) -> None:
        try:
            home = self._home(name).partitions[name.partition]
        except DejaQError:
            return  # the next start tells everybody again
        if home.staged_watch is not None:
            home.staged_watch.tell_later(home, name.text)
            home.ring()

    def _finish(self, done: Future[None], error: BaseException | None) -> None:
        with self._lock:
            if done not in self._pending:
                return
            self._pending.discard(done)
        if error is None:
            done.set_result(None)
        elif isinstance(error, DejaQError):
            done.set_exception(error)
        else:
            done.set_exception(InternalError(f"{type(error).__name__}: {error}"))

    def _home(self, name: TransactionName) -> TopicRuntime:
        return self._check_place(name.topic, name.partition)

    def _check_place(self, topic: str, partition: int) -> TopicRuntime:
        runtime = self._runtime(topic)
        if partition not in runtime.partitions:
            raise TopicUnknown(f"{topic}/{partition}")
        return runtime


# --- on the worker of the home, or of a participant -------------------------------------------


def _remember(home: Partition, name: TransactionName, record: Record, commit: bool) -> _Decision:
    """Decide, unless that was done before."""
    known = home.engine.decisions.get(name.text)
    if known is not None:
        before = Record.parse(known[1])
        if not before.places:  # its branches are decided: what is there still lost
            before = replace(record, branches=())
        return _Decision(known[0], replace(before, places=_joined(before, record)))
    outcome = commit and home.now_ms() < name.until_ms
    return _write_down(home, name.text, record, outcome)


def _remember_epoch(
    home: Partition, name: TransactionName, record: Record, until_ms: int
) -> _Decision:
    """Commit an epoch, unless that was done before."""
    known = home.engine.decisions.get(name.text)
    before = Record() if known is None else Record.parse(known[1])
    if before.epoch >= record.epoch:
        is_same = before.family == record.family
        branches = before.branches if is_same else ()
        places = _joined(before, record) if is_same else record.places
        return _Decision(True, replace(record, branches=branches, places=places))
    if before.places:
        raise Unavailable(f"epoch {before.epoch} is being committed still", RETRY_MS)
    if home.now_ms() >= until_ms:
        return _Decision(False, replace(record, branches=()))
    return _write_down(home, name.text, record, True)


def _epochs_of(topic: str, query: str, sender: Sender) -> TransactionName:
    """Under which name its home remembers the last epoch of a sender's query."""
    family = family_of(sender, query)
    return TransactionName.parse(f"{topic}/0/{limits.INSTANT_MS_MAX}-1-{family}")


def _joined(before: Record, record: Record) -> tuple[Place, ...]:
    return tuple(dict.fromkeys([*before.places, *record.places]))


def _write_down(home: Partition, text: str, record: Record, commit: bool) -> _Decision:
    """The decision is made: keep it, and do it in the home itself."""
    here = (home.topic().name, home.number)
    left = record
    if not record.family:  # branches may be many: the home is told as the others are
        left = replace(record, places=tuple(place for place in record.places if place != here))
    # What everybody knows at once is remembered as such.
    kept = left if left.places else record.told()
    home.apply(Remember(home.now_ms(), text, commit, kept.to_text()))
    if here in record.places and not record.family:
        _do_decide(home, text, commit, record)
    return _Decision(commit, left)


def _recall(home: Partition, name: TransactionName) -> bool | None:
    """What was decided; what nobody decided in time is aborted from now on."""
    known = home.engine.decisions.get(name.text)
    if known is not None:
        return known[0]
    if name.branch:
        commit = _recall_branch(home, name)
        if commit is not None:
            return commit
    if home.now_ms() < name.until_ms:
        return None
    home.apply(Remember(home.now_ms(), name.text, commit=False))
    return False


def _recall_branch(home: Partition, name: TransactionName) -> bool | None:
    """As `_recall`, of what was decided for its family."""
    decisions = home.engine.decisions
    for commit, told in decisions.values():
        if f";{name.family};" in told:
            return commit and name.branch in Record.parse(told).branches
    # Everybody was told: whoever has it still, has a branch that does not count.
    return False if name.text.partition("~")[0] in decisions else None


def _known(home: Partition, name: TransactionName) -> _Decision | None:
    known = home.engine.decisions.get(name.text)
    return None if known is None else _Decision(known[0], Record.parse(known[1]))


def _complete(home: Partition, name: TransactionName) -> None:
    """All participants know it: nobody has to be told any more."""
    known = home.engine.decisions.get(name.text)
    if known is not None and (record := Record.parse(known[1])).places:
        home.apply(Remember(home.now_ms(), name.text, known[0], record.told().to_text()))


def _do_decide(place: Partition, text: str, commit: bool, record: Record) -> bool:
    """Do what was decided; True if there is more to do."""
    if record.family:
        return decide_family(place, record, commit=commit)
    if place.engine.has_staged(text):
        place.apply(Decide(place.now_ms(), text, commit))
    return False
