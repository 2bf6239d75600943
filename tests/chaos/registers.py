"""Clients that ask few keys, topics and transactions of a cluster in trouble, all at once.

As tests/simulation/cluster/registers.py, with the real client and real brokers: what they were
answered has to be one linear order. Calls without an answer may take effect at any later time.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import TimeoutError as NoAnswer
from typing import Any

from dejaqueue import Client
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.errors import (
    Elsewhere,
    Refused,
    ResourceExhausted,
    TopicExists,
    TopicUnknown,
    Unavailable,
)
from dejaqueue.model import RowStatus, unpack_id
from tests.chaos.clocks import CLOCK
from tests.checker.fault import Fault
from tests.checker.history import Cancel, Decide, History, Look, Outcome, Send
from tests.checker.linear import Call
from tests.checker.linear_registers import (
    EXISTS,
    GONE,
    Calls,
    judge_linear,
    judge_topics,
)
from tests.patience import PATIENCE_SECONDS

KEYED, OTHER = "registers", "registers2"
KEYS = ("k1", "k2", "k3")
REMADE = ("remade1", "remade2")
PARTITIONS = 2
APART = 1_000 << 47
"""Added to ids of the other topic, so that partitions of both have names of their own."""
FAR_AHEAD_S = 7_200
ANSWER_SECONDS_MAX = 20.0
TURNS_MAX = 3_000
"""Calls of one client; what is judged stays small, however long the chaos lasts."""
PEEK_MAX = 10_000
NOBODY_KNOWS = (Unavailable, Elsewhere, ResourceExhausted, NoAnswer)
"""What may have been done all the same; any other error is a finding."""


class Registers:
    """The clients, what they asked, and what they were told.

    Args:
        client: makes a client that may go to any broker.
        urls: of each broker.
    """

    def __init__(self, client: Callable[[int], Client], urls: list[str], seed: int) -> None:
        self._client, self._urls, self._seed = client, urls, seed
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._count = 0
        self.history = History()
        self.topics: Calls = defaultdict(list)
        self.glimpses: Calls = defaultdict(list)
        self.faults: list[Fault] = []
        self.unexpected: list[str] = []

    def begin(self) -> None:
        """Make the topics, and begin to ask."""
        with self._client(30_000) as client:
            for topic in (KEYED, OTHER):
                client.create_topic(topic, partitions=PARTITIONS)
        acts = (self._ask_key, self._ask_key, self._ask_topic, self._ask_topic, self._transact)
        for number, act in enumerate((*acts, self._peer)):
            thread = threading.Thread(target=self._run, args=(number, act), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, number: int, act: Callable[[Client, random.Random], None]) -> None:
        dice = random.Random(f"{self._seed} registers {number}")
        try:
            with self._client(3_000) as client:
                for _ in range(TURNS_MAX):
                    act(client, dice)
                    if self._stop.wait(dice.uniform(0.01, 0.3)):
                        return
        except BaseException as error:  # noqa: BLE001 - shown at the end
            self.unexpected.append(f"registers, client {number}: {error!r}")

    def end(self) -> None:
        """Ask no more, then look at everything once more, everywhere."""
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            if thread.is_alive():
                self.unexpected.append("a client of registers does not end")
        with self._client(30_000) as client:
            for key in KEYS:
                self._look(client, key)
            for topic in (KEYED, OTHER):
                for partition, url in itertools.product(range(PARTITIONS), self._urls):
                    self._see(topic, partition, url)
        for url in self._urls:
            for name in REMADE:
                self._call_topic("describe", name, None, url)

    def judge(self) -> list[Fault]:
        """What no linear order explains."""
        if not any(self.glimpses.values()) and self.history.decisions:
            self.unexpected.append("nobody ever saw what a transaction shows")
        linear = [*judge_linear(self.history, self.glimpses), *judge_topics(self.topics)]
        return [*self.faults, *linear]

    def text(self) -> str:
        """How many calls there were, and how many of them were answered."""
        kinds: dict[str, tuple[Any, ...]] = {
            "sends": (*self.history.sends,),
            "cancels by key": (*self.history.cancels[::2],),
            "looks": (*self.history.looks,),
            "decisions": (*self.history.decisions,),
        }
        texts = [
            f"{sum(one.outcome is not Outcome.UNKNOWN for one in ones)} of {len(ones)} {kind}"
            for kind, ones in kinds.items()
        ]
        calls = [call for mine in self.topics.values() for call in mine]
        texts.append(f"{sum(call.told is not None for call in calls)} of {len(calls)} of topics")
        seen = sum(len(mine) for mine in self.glimpses.values())
        return f"registers, answered: {', '.join(texts)}; {seen} glimpses of transactions"

    # --- keys -------------------------------------------------------------------------------------

    def _ask_key(self, client: Client, dice: random.Random) -> None:
        key, chance = dice.choice(KEYS), dice.random()
        if chance < 0.4:
            self._send(client, key)
        elif chance < 0.65:
            self._cancel(client, key)
        else:
            self._look(client, key)

    def _token(self) -> str:
        with self._guard:
            self._count += 1
            return f"r-{self._count}"

    def _send(self, client: Client, key: str) -> None:
        now_us = CLOCK.now_us()
        due_ms = now_us // 1_000 + FAR_AHEAD_S * 1_000
        note = Send(now_us, token=self._token(), due_ms=due_ms, key=key)
        self.history.sends.append(note)
        row = {"payload": note.token.encode(), "due": due_ms, "key": key}
        try:
            result = client.send_batch(KEYED, [row])
        except NOBODY_KNOWS:
            return
        number, fine = int(result.ids[0]), result.statuses[0] == RowStatus.OK
        note.id, note.told_id = (number, -1) if fine else (-1, number)
        note.answer(CLOCK.now_us(), Outcome.OK if fine else Outcome.REFUSED)

    def _cancel(self, client: Client, key: str) -> None:
        note = Cancel(CLOCK.now_us(), key=key)
        # The client may have sent it more than once: each may have cancelled another message.
        self.history.cancels += [note, Cancel(note.called_us, key=key)]
        try:
            status = client.cancel(KEYED, key=key)
        except NOBODY_KNOWS:
            return
        note.status = int(status)
        fine = status is RowStatus.OK
        note.answer(CLOCK.now_us(), Outcome.OK if fine else Outcome.REFUSED)

    def _look(self, client: Client, key: str) -> None:
        note = Look(CLOCK.now_us(), key=key)
        self.history.looks.append(note)
        try:
            found = client.peek(KEYED, keys=[key])
        except NOBODY_KNOWS:
            return
        if found.num_rows:
            note.id, note.token = found["id"][0].as_py(), found["payload"][0].as_py().decode()
        if found.num_rows > 1:
            self.faults.append(Fault(11, f"key {key} has {found.num_rows} messages"))
        note.answer(CLOCK.now_us(), Outcome.OK)

    # --- topics -----------------------------------------------------------------------------------

    def _ask_topic(self, client: Client, dice: random.Random) -> None:
        ops = ("create", "create or equal", "alter", "delete", "describe")
        [op] = dice.choices(ops, (20, 10, 15, 10, 45))
        lease_ms = None if op in ("delete", "describe") else dice.choice([1_000, 2_000, 3_000])
        self._call_topic(op, dice.choice(REMADE), lease_ms, dice.choice(self._urls))

    def _call_topic(self, op: str, name: str, lease_ms: int | None, url: str) -> None:
        """Ask one broker, once."""
        action = {"create or equal": "create_topic"}.get(op, f"{op}_topic")
        body: dict[str, Any] = {"name": name}
        if lease_ms is not None:
            body["lease_ms"] = lease_ms
        if action == "create_topic":
            body["exist_ok"] = op == "create or equal"
        called_us = CLOCK.now_us()
        answer: object = None
        try:
            answer = self._action(url, action, body).get("lease_ms", "OK")
            answer = answer if op == "describe" else "OK"
        except TopicUnknown:
            answer = GONE
        except TopicExists:
            answer = EXISTS
        except NOBODY_KNOWS:
            pass
        call = Call(op, lease_ms, answer, called_us, CLOCK.now_us(), url)
        with self._guard:
            self.topics[name].append(call)

    @staticmethod
    def _action(url: str, action: str, body: dict[str, Any]) -> dict[str, Any]:
        transport = FlightTransport(url)
        try:
            return transport.action(action, body).result(ANSWER_SECONDS_MAX)
        finally:
            transport.close()

    # --- transactions -----------------------------------------------------------------------------

    def _transact(self, client: Client, dice: random.Random) -> None:
        """Stage in both topics, and commit; somebody else may abort at the same moment."""
        transaction = client.transaction(timeout=dice.choice([1, 5, 30]))
        places = [
            (topic, dice.randrange(PARTITIONS))
            for topic in dice.choices([KEYED, OTHER], k=dice.randint(1, 3))
        ]
        sends: list[Send] = []
        for topic, partition in places:
            if not self._stage(transaction, topic, partition, dice.randint(1, 3), sends):
                break
        if not transaction.name:
            return
        for send in sends:
            send.transaction = transaction.name
        with self._guard:
            self.history.sends += sends
        rival: threading.Thread | None = None
        if dice.random() < 0.3:
            named = [f"{topic}/{partition}" for topic, partition in sorted(set(places))]
            body = {"transaction": transaction.name, "participants": named}
            url = dice.choice(self._urls)
            rival = threading.Thread(target=self._abort, args=(body, url), daemon=True)
            rival.start()
        commit = dice.random() < 0.8
        self._decide(
            transaction.name, transaction.commit if commit else transaction.abort, commit=commit
        )
        if rival is not None:
            rival.join(2 * ANSWER_SECONDS_MAX)

    def _stage(
        self, transaction: Any, topic: str, partition: int, count: int, sends: list[Send]
    ) -> bool:
        now_us = CLOCK.now_us()
        due_ms = now_us // 1_000 + FAR_AHEAD_S * 1_000
        notes = [Send(now_us, token=self._token(), due_ms=due_ms) for _ in range(count)]
        sends += notes
        rows = [
            {"payload": note.token.encode(), "due": due_ms, "partition": partition}
            for note in notes
        ]
        try:
            result = transaction.send_batch(topic, rows)
        except (*NOBODY_KNOWS, Refused):  # its time may be over
            return False
        for note, number in zip(notes, result.ids.tolist(), strict=True):
            note.id = number + (APART if topic == OTHER else 0)
            note.answer(CLOCK.now_us(), Outcome.OK)
        return True

    def _decide(self, name: str, call: Callable[[], object], *, commit: bool) -> None:
        note = Decide(CLOCK.now_us(), transaction=name, commit=commit)
        with self._guard:
            self.history.decisions.append(note)
        try:
            call()
        except Refused:
            note.answer(CLOCK.now_us(), Outcome.REFUSED)
        except NOBODY_KNOWS:
            pass
        else:
            note.answer(CLOCK.now_us(), Outcome.OK)

    def _abort(self, body: dict[str, Any], url: str) -> None:
        call = lambda: self._action(url, "abort_transaction", body)  # noqa: E731
        self._decide(body["transaction"], call, commit=False)

    def _peer(self, client: Client, dice: random.Random) -> None:
        topic, partition = dice.choice([KEYED, OTHER]), dice.randrange(PARTITIONS)
        self._see(topic, partition, dice.choice(self._urls))

    def _see(self, topic: str, partition: int, url: str) -> None:
        """See what a partition shows of transactions."""
        apart = APART if topic == OTHER else 0
        place = unpack_id(apart)[0] + partition
        known: dict[str, set[str]] = defaultdict(set)
        with self._guard:
            for send in self.history.sends:
                if send.transaction and send.id >= 0 and unpack_id(send.id)[0] == place:
                    known[send.transaction].add(send.token)
        called_us = CLOCK.now_us()
        transport = FlightTransport(url)
        ticket = {"op": "peek", "topic": topic, "partition": partition, "limit": PEEK_MAX}
        try:
            found = transport.rows(ticket).result(ANSWER_SECONDS_MAX)
        except NOBODY_KNOWS:
            return
        finally:
            transport.close()
        answered_us = CLOCK.now_us()
        there = {payload.decode() for payload in found["payload"].to_pylist()}
        for name, tokens in known.items():
            if tokens & there and tokens - there:
                self.faults.append(Fault(12, f"partition {place} shows a part of {name}"))
            op = "see" if tokens & there else "miss"
            with self._guard:
                self.glimpses[name].append(Call(op, str(place), "OK", called_us, answered_us))
