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
import re
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dejaqueue import limits
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
from dejaqueue.wire.descriptors import check_fields

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition
    from dejaqueue.broker.runtime import TopicRuntime

_NAME = re.compile(r"([A-Za-z0-9._-]{1,255})/(\d{1,5})/(\d{1,15})-(\d{1,7})-[0-9a-f]{32}")
_PLACE = re.compile(r"([A-Za-z0-9._-]{1,255})/(\d{1,5})")
ACTIONS = {
    "begin_transaction": ("topic", "timeout_ms"),
    "commit_transaction": ("transaction", "participants"),
    "abort_transaction": ("transaction", "participants"),
    "transactions": ("topic",),
}
"""Actions of docs/wire.md, and what their bodies hold."""
RETRY_MS = 1_000
"""Who could not be asked or told is asked or told again after this."""


@dataclass(frozen=True, slots=True)
class TransactionName:
    """What the name of a transaction says.

    Attributes:
        topic, partition: its home, where the decision is kept.
        began_ms, until_ms: its time.
    """

    text: str
    topic: str
    partition: int
    began_ms: int
    until_ms: int

    @classmethod
    def parse(cls, text: object) -> TransactionName:
        """Read a name. Raises BadRequest."""
        found = _NAME.fullmatch(text) if isinstance(text, str) else None
        if found is None or int(found[4]) > limits.TRANSACTION_MS_MAX:
            raise BadRequest("transaction", "a name that begin_transaction gave", text)
        began_ms = int(found[3])
        assert isinstance(text, str)
        return cls(text, found[1], int(found[2]), began_ms, began_ms + int(found[4]))


def check_participants(participants: object) -> list[tuple[str, int]]:
    """Topics and partitions that a transaction touched. Raises BadRequest."""
    most = limits.TRANSACTION_PARTICIPANTS_MAX
    if not isinstance(participants, list) or len(participants) > most:
        raise BadRequest("participants", f"a list of at most {most} topic/partition", participants)
    places = []
    for text in participants:
        found = _PLACE.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise BadRequest("participants", "topic/partition", text)
        places.append((found[1], int(found[2])))
    return list(dict.fromkeys(places))


def _joined(places: Sequence[tuple[str, int]]) -> str:
    return ",".join(f"{topic}/{partition}" for topic, partition in places)


def _places(text: str) -> list[tuple[str, int]]:
    split = [part.rpartition("/") for part in text.split(",") if part]
    return [(topic, int(partition)) for topic, _, partition in split]


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a home decided, now or before, and who has to be told."""

    commit: bool
    left: list[tuple[str, int]]


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

    def begin(self, topic: object, timeout_ms: object) -> dict[str, Any]:
        """A name for a new transaction, whose home is a partition of this topic.

        Raises:
            BadRequest, TopicUnknown.
        """
        if not isinstance(topic, str):
            raise BadRequest("topic", "the name of a topic", topic)
        low, high = 1, limits.TRANSACTION_MS_MAX
        if not isinstance(timeout_ms, int) or isinstance(timeout_ms, bool):
            raise BadRequest("timeout_ms", "a whole number of milliseconds", timeout_ms)
        if not low <= timeout_ms <= high:
            raise BadRequest("timeout_ms", f"from {low} to {high}", timeout_ms)
        partition = next(self._turn) % len(self._runtime(topic).partitions)
        began_ms = self._clock.now_ms()
        name = f"{topic}/{partition}/{began_ms}-{timeout_ms}-{uuid.uuid4().hex}"
        return {"transaction": name, "until_ms": began_ms + timeout_ms}

    def stage(self, text: str) -> Stage:
        """What batches of this transaction carry. Raises BadRequest."""
        name = TransactionName.parse(text)
        if name.until_ms > self._clock.now_ms() + 2 * limits.TRANSACTION_MS_MAX:
            raise BadRequest("transaction", "a name that begin_transaction gave", text)
        return Stage(text, name.until_ms)

    def decide(self, text: object, participants: object, *, commit: bool) -> Future[None]:
        """Commit or abort. Done when every participant has it durable.

        The future fails with Refused if it was decided otherwise before, or too late; with
        Unavailable if it is decided but not everybody could be told yet: the same call again
        gives the same answer.

        Raises:
            BadRequest, TopicUnknown.
        """
        name = TransactionName.parse(text)
        told = check_participants(participants)
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

        remember = partial(_remember, name=name, told=told, commit=commit)
        home.change(name.partition, remember).add_done_callback(decided)
        return done

    def undecided(self, topic: str) -> list[dict[str, Any]]:
        """The transactions that have something staged in a topic, oldest first. Blocks."""
        runtime = self._runtime(topic)
        looks = [
            runtime.look(number, lambda place: place.engine.staged())
            for number in range(len(runtime.partitions))
        ]
        now_ms = self._clock.now_ms()
        rows = []
        for number, look in enumerate(looks):
            for text, (until_ms, messages, acks) in look.result().items():
                name = TransactionName.parse(text)
                row = {"transaction": text, "partition": number, "age_ms": now_ms - name.began_ms}
                rows.append(row | {"left_ms": until_ms - now_ms, "staged": messages, "acked": acks})
        return sorted(rows, key=lambda row: (-int(str(row["age_ms"])), str(row["transaction"])))

    def act(self, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        """One of ACTIONS: JSON in, JSON out.

        Raises:
            BadRequest, TopicUnknown. Others come with the future.
        """
        answer: Future[dict[str, Any]] = Future()
        check_fields(body, list(ACTIONS[action]))
        if action == "begin_transaction":
            timeout_ms = body.get("timeout_ms", limits.TRANSACTION_MS_DEFAULT)
            answer.set_result(self.begin(body.get("topic"), timeout_ms))
        elif action == "transactions":
            topic = body.get("topic")
            if not isinstance(topic, str):
                raise BadRequest("topic", "the name of a topic", topic)
            answer.set_result({"transactions": self.undecided(topic)})
        else:
            commit = action == "commit_transaction"
            participants = body.get("participants", [])
            decided = self.decide(body.get("transaction"), participants, commit=commit)

            def copy(done: Future[None]) -> None:
                wrong = done.exception()
                if wrong is not None:
                    answer.set_exception(wrong)
                else:
                    answer.set_result({})

            decided.add_done_callback(copy)
        return answer

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
        left = list(decision.left)
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
            self._decide_in(topic, partition, name.text, decision.commit, one_knows)

    def _decide_in(
        self,
        topic: str,
        partition: int,
        text: str,
        commit: bool,
        then: Callable[[BaseException | None], None],
    ) -> None:
        try:
            runtime = self._check_place(topic, partition)
        except DejaQError as error:
            then(error)
            return
        known = runtime.change(partition, partial(_do_decide, text=text, commit=commit))
        known.add_done_callback(lambda future: then(future.exception()))

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
        if partition >= len(runtime.partitions):
            raise TopicUnknown(f"{topic}/{partition}")
        return runtime


# --- on the worker of the home, or of a participant -------------------------------------------


def _remember(
    home: Partition, name: TransactionName, told: list[tuple[str, int]], commit: bool
) -> _Decision:
    """Decide, unless that was done before."""
    known = home.engine.decisions.get(name.text)
    here = (home.topic().name, home.number)
    if known is not None:
        return _Decision(known[0], list(dict.fromkeys([*_places(known[1]), *told])))
    outcome = commit and home.now_ms() < name.until_ms
    others = [place for place in told if place != here]
    home.apply(Remember(home.now_ms(), name.text, outcome, _joined(others)))
    if here in told:
        home.apply(Decide(home.now_ms(), name.text, outcome))
    return _Decision(outcome, others)


def _recall(home: Partition, name: TransactionName) -> bool | None:
    """What was decided; what nobody decided in time is aborted from now on."""
    known = home.engine.decisions.get(name.text)
    if known is not None:
        return known[0]
    if home.now_ms() < name.until_ms:
        return None
    home.apply(Remember(home.now_ms(), name.text, commit=False))
    return False


def _known(home: Partition, name: TransactionName) -> _Decision | None:
    known = home.engine.decisions.get(name.text)
    return None if known is None else _Decision(known[0], _places(known[1]))


def _complete(home: Partition, name: TransactionName) -> None:
    """All participants know it: nobody has to be told any more."""
    known = home.engine.decisions.get(name.text)
    if known is not None and known[1]:
        home.apply(Remember(home.now_ms(), name.text, known[0]))


def _do_decide(place: Partition, text: str, commit: bool) -> None:
    if place.engine.has_staged(text):
        place.apply(Decide(place.now_ms(), text, commit))
