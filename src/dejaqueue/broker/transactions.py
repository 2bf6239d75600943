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
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dejaqueue import limits
from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.broker import deciding
from dejaqueue.broker.branches import (
    Place,
    Record,
    check_branches,
    check_epoch,
    is_committed,
)
from dejaqueue.broker.deciding import RETRY_MS, Decision
from dejaqueue.broker.peers import ASK, TELL, Peers
from dejaqueue.broker.transaction_names import TransactionName, check_participants, family_of
from dejaqueue.clock import Clock
from dejaqueue.engine.commands import Stage
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    Elsewhere,
    InternalError,
    Refused,
    TopicUnknown,
    Unavailable,
)
from dejaqueue.model import check_topic_name

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition
    from dejaqueue.broker.runtime import TopicRuntime


class Transactions:
    """The coordinator of all transactions of a broker.

    Args:
        runtime: the served topic of a name, or TopicUnknown, or Elsewhere.
        has: whether there is such a partition, served here or not. Raises Refused: it cannot take
            part.
        peers: the way to other brokers of a cluster; None = there is none.
    """

    def __init__(
        self,
        runtime: Callable[[str], TopicRuntime],
        clock: Clock,
        has: Callable[[str, int], bool],
        peers: Callable[[], Peers | None] = lambda: None,
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._has = has
        self._peers = peers
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
        began_ms = self._clock.utc_ms()
        name = f"{topic}/{partition}/{began_ms}-{timeout_ms}-{family}"
        return {"transaction": name, "until_ms": began_ms + timeout_ms}

    def stage(self, text: str, op: str = "enqueue", sender: Sender = NOBODY) -> Stage:
        """What batches of this transaction carry. Raises BadRequest."""
        name = TransactionName.parse(text, sender)
        if not self._has(name.topic, name.partition):
            raise TopicUnknown(name.topic)
        most_ms = limits.BRANCHED_MS_MAX if name.branch else limits.TRANSACTION_MS_MAX
        if name.until_ms - name.began_ms > most_ms:
            raise BadRequest("transaction", "a branch of it", text)
        if name.until_ms > self._clock.utc_ms() + 2 * most_ms:
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
        record = Record(self._there(participants))
        if branches is not None:
            record = replace(record, family=name.family, branches=check_branches(branches))
        remember = partial(deciding.remember, name=name, record=record, commit=commit)
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
            self._there(body.get("participants")),
            family_of(sender, query, epoch),
            epoch,
            check_branches(body.get("branches")),
        )
        name = deciding.epochs_of(check_topic_name(topic), query, sender)
        remember = partial(deciding.remember_epoch, name=name, record=record, until_ms=until_ms)
        return self._decided(name, remember, True)

    def _decided(
        self, name: TransactionName, remember: Callable[[Partition], Decision], commit: bool
    ) -> Future[None]:
        """Decide in the home, then tell the others."""
        if not self._has(name.topic, name.partition):
            raise TopicUnknown(name.topic)
        home = self._home(name)
        done: Future[None] = Future()
        with self._lock:
            self._pending.add(done)

        def decided(future: Future[Decision]) -> None:
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

    def _there(self, participants: object) -> tuple[Place, ...]:
        """The participants, but for partitions that are nowhere: nothing is staged in them."""
        return tuple(place for place in check_participants(participants) if self._has(*place))

    def undecided(self, topic: str) -> list[dict[str, Any]]:
        """The transactions that have something staged in a topic, oldest first. Blocks."""
        runtime = self._runtime(topic)
        looks = [
            runtime.look(number, lambda place: place.engine.staged())
            for number in runtime.partitions.numbers
        ]
        now_ms = self._clock.utc_ms()
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
        """A call about transactions, of the table in access/calls.py: JSON in, JSON out.

        Raises:
            BadRequest, TopicUnknown. Others come with the future.
        """
        answer: Future[dict[str, Any]] = Future()
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
        home = deciding.epochs_of(body["topic"], body["query"], sender)

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

        def answered(commit: bool | None) -> None:
            if commit is None:
                then(False)
            else:
                self._decide_in(topic, partition, text, commit, lambda error: then(error is None))

        self._ask(text, answered)

    def _ask(self, text: str, then: Callable[[bool | None], None]) -> None:
        """What became of a transaction, by its home; None = undecided, or it cannot be asked."""
        try:
            name = TransactionName.parse(text)
            if not self._has(name.topic, name.partition):
                raise TopicUnknown(name.topic)
            home = self._home(name)
        except Elsewhere as other:

            def far(answer: dict[str, Any], error: BaseException | None) -> None:
                if isinstance(error, TopicUnknown):
                    then(False)
                else:
                    then(None if error is not None else answer.get("commit"))

            self._ask_far(other, ASK, {"transaction": text}, far)
            return
        except BadRequest:  # its topic is gone, and with it every decision: it was not committed
            then(False)
            return
        except DejaQError:
            then(None)
            return

        def near(future: Future[bool | None]) -> None:
            then(None if future.exception() is not None else future.result())

        recall = partial(deciding.recall, name=name)
        home.change(name.partition, recall).add_done_callback(near)

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

    def hear(self, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        """What another broker tells or asks, of a partition that is served here.

        Raises:
            BadRequest, TopicUnknown, Elsewhere. Others come with the future.
        """
        answer: Future[dict[str, Any]] = Future()
        text = TransactionName.parse(body.get("transaction")).text
        if action == ASK:
            self._home(TransactionName.parse(text))  # asked here, or not at all
            self._ask(text, lambda commit: answer.set_result({"commit": commit}))
            return answer
        [(topic, partition)] = check_participants([body.get("place")])
        commit, record = body.get("commit"), body.get("record")
        if not isinstance(commit, bool):
            raise BadRequest("commit", "true or false", commit)
        if not isinstance(record, str):
            raise BadRequest("record", "a text", record)
        self._check_place(topic, partition)

        def told(error: BaseException | None) -> None:
            if error is None:
                answer.set_result({})
            else:
                answer.set_exception(error)

        self._decide_in(topic, partition, text, commit, told, Record.parse(record))
        return answer

    def tell_again(self, text: str, then: Callable[[bool], None]) -> None:
        """Tell a decision to those who may not know it. `then` as for `resolve`."""
        try:
            name = TransactionName.parse(text)
            home = self._home(name)
        except DejaQError:
            then(False)
            return

        def read(future: Future[Decision | None]) -> None:
            decision = None if future.exception() is not None else future.result()
            if decision is None:
                then(False)
            else:
                self._tell(name, decision, lambda error: then(error is None))

        home.change(name.partition, partial(deciding.known_decision, name=name)).add_done_callback(
            read
        )

    def _tell(
        self,
        name: TransactionName,
        decision: Decision,
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
        record = record or Record()
        try:
            runtime = self._check_place(topic, partition)
        except Elsewhere as other:
            body = {"transaction": text, "place": f"{topic}/{partition}", "commit": commit}
            body["record"] = replace(record, places=()).to_text()
            self._ask_far(other, TELL, body, lambda _, error: then(error))
            return
        except DejaQError as error:
            then(error)
            return
        tell = partial(deciding.do_decide, text=text, commit=commit, record=record)

        def told(future: Future[bool]) -> None:
            wrong = future.exception()
            if wrong is None and future.result():
                runtime.change(partition, tell).add_done_callback(told)
            else:
                then(wrong)

        runtime.change(partition, tell).add_done_callback(told)

    def _all_know(self, name: TransactionName) -> None:
        try:
            self._home(name).change(name.partition, partial(deciding.complete, name=name))
        except DejaQError:
            return  # the next start tells everybody again

    def _told(
        self,
        done: Future[None],
        name: TransactionName,
        wanted: bool,
        decision: Decision,
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
        if partition not in runtime.partitions:  # it was added elsewhere just now
            raise Unavailable(f"partition {partition} of topic {topic} is being made", 50)
        return runtime
