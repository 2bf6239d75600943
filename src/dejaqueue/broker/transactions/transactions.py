"""Transactions: what was staged in many partitions counts in all of them, or in none (rule 12).

Room: broker. Any thread may call it and nothing here blocks: what is asked of a partition runs on
its worker, and answers come as futures.
Holds: one decision per transaction, durable in its home before any participant hears of it; a home
commits nothing once the transaction's time is over.
See: coordinator.py, which tells decisions; home.py for what partitions do; staging.py, which asks
again; docs/guides/transactions.md.

    commit = Remember in the home → Decide in every participant → answer; Remember: all know it

The name of a transaction says where its home is and when its time is over, so that there is nothing
to make durable when one begins. A home that does not know a transaction whose time is over says
that it was aborted: its own time never goes back, so no later commit can be let in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from dejaqueue import limits
from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.broker.topic.peers import ASK
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.broker.transactions import home
from dejaqueue.broker.transactions.coordinator import Coordinator
from dejaqueue.broker.transactions.home import Decision
from dejaqueue.broker.transactions.names import (
    Participant,
    TransactionName,
    check_branches,
    check_epoch,
    check_participants,
    family_of,
)
from dejaqueue.broker.transactions.record import Record
from dejaqueue.clock import Clock
from dejaqueue.engine.commands import Stage
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.topic_names import check_topic_name


class Transactions:
    """What is asked of a broker's transactions, by clients and by other brokers.

    Args:
        coordinator: does it.
        clock: says when a transaction begins.
        begins: what of a topic is served here, for the home of a new transaction. Raises
            TopicUnknown, Elsewhere.
    """

    def __init__(
        self, coordinator: Coordinator, clock: Clock, begins: Callable[[str], ServedTopic]
    ) -> None:
        self.coordinator = coordinator
        self._begins = begins
        self._clock = clock
        self._turn = itertools.count()

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
        if is_epoch:  # what a query committed is known in one place
            self.coordinator.served_partition(topic, 0)
            family = family_of(sender, *check_epoch(query, epoch))
        else:
            numbers = self._begins(topic).partitions.numbers
            partition = numbers[next(self._turn) % len(numbers)]
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
        if not self.coordinator.has(name.topic, name.partition):
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
        record = Record(self._existing(participants))
        if branches is not None:
            record = replace(record, family=name.family, branches=check_branches(branches))
        remember = partial(home.remember, name=name, record=record, commit=commit)
        return self.coordinator.begin(name, remember, commit)

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
            self._existing(body.get("participants")),
            family_of(sender, query, epoch),
            epoch,
            check_branches(body.get("branches")),
        )
        name = home.epochs_of(check_topic_name(topic), query, sender)
        remember = partial(home.remember_epoch, name=name, record=record, until_ms=until_ms)
        return self.coordinator.begin(name, remember, True)

    def _existing(self, participants: object) -> tuple[Participant, ...]:
        """The participants, but for partitions that are nowhere: nothing is staged in them."""
        return tuple(one for one in check_participants(participants) if self.coordinator.has(*one))

    def undecided(self, topic: str) -> list[dict[str, Any]]:
        """The transactions that have something staged in a topic, oldest first. Blocks."""
        served = self.coordinator.served(topic)
        looks = {
            number: served.look(number, lambda core: core.engine.staged())
            for number in served.partitions.numbers
        }
        now_ms = self._clock.utc_ms()
        rows = []
        for number, look in looks.items():
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
                self._look_up_epoch(body, begun, answer, sender)
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
            decided.add_done_callback(partial(_answer_empty, answer))
        return answer

    def _look_up_epoch(
        self,
        body: dict[str, Any],
        begun: dict[str, Any],
        answer: Future[dict[str, Any]],
        sender: Sender,
    ) -> None:
        """Answer with what begin gave, and whether the epoch is committed already."""
        epochs = home.epochs_of(body["topic"], body["query"], sender)

        def looked(future: Future[bool]) -> None:
            wrong = future.exception()
            if wrong is not None:
                answer.set_exception(wrong)
            else:
                answer.set_result(begun | {"committed": future.result()})

        look = partial(home.is_committed, text=epochs.text, epoch=body["epoch"])
        self.coordinator.home_of(epochs).look(epochs.partition, look).add_done_callback(looked)

    def hear(self, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        """What another broker tells or asks, of a partition that is served here.

        Raises:
            BadRequest, TopicUnknown, Elsewhere. Others come with the future.
        """
        answer: Future[dict[str, Any]] = Future()
        text = TransactionName.parse(body.get("transaction")).text
        if action == ASK:
            self.coordinator.home_of(TransactionName.parse(text))  # asked here, or not at all
            self.coordinator.recall(text, lambda commit: answer.set_result({"commit": commit}))
            return answer
        [(topic, partition)] = check_participants([body.get("place")])
        commit, record = body.get("commit"), body.get("record")
        if not isinstance(commit, bool):
            raise BadRequest("commit", "true or false", commit)
        if not isinstance(record, str):
            raise BadRequest("record", "a text", record)
        self.coordinator.served_partition(topic, partition)
        decision = Decision(commit, Record.parse(record))
        self.coordinator.have_done(
            (topic, partition), text, decision, partial(_settle_empty, answer)
        )
        return answer


def _settle_empty(answer: Future[dict[str, Any]], error: BaseException | None) -> None:
    """Answer a call whose answer says nothing but that it was done."""
    if error is None:
        answer.set_result({})
    else:
        answer.set_exception(error)


def _answer_empty(answer: Future[dict[str, Any]], done: Future[None]) -> None:
    _settle_empty(answer, done.exception())
