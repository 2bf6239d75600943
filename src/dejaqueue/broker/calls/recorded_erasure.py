"""Erasing from history wherever brokers of a cluster recorded it, and the copies of journals there.

Room: broker. On the caller's thread; files are written on each broker's own thread for history.
Holds: which messages are meant is put together from all brokers before any of them erases: a life
may be told in pieces, of which one alone says what the message was; who did not answer is named.
See: history/erasure.py; calls/erasure.py; topic/peers.py; docs/adr/0092-erasure-on-a-server.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.calls.browse import topic_name, whole
from dejaqueue.broker.calls.port import BrokerPort
from dejaqueue.broker.history.erasure import ErasedRows, RecordedChoice, erase_told, recorded_of
from dejaqueue.broker.history.history import History
from dejaqueue.broker.shard.stored_erasure import ErasureChoice
from dejaqueue.broker.topic.peers import ERASURE
from dejaqueue.clock import Wake
from dejaqueue.engine.arrays import Int64s, distinct
from dejaqueue.errors import BadRequest, DejaQError, Unavailable
from dejaqueue.model import Topic
from dejaqueue.topic_names import topic_of
from dejaqueue.wire.descriptors import json_object

FIND, ERASE = "find", "erase"
"""Steps: say which messages are meant; erase those that are named."""
OWN_SECONDS: Final = 600.0
"""So long are files of this broker written again."""
HEARD_SECONDS: Final = 4.0
"""And those of another one, before it says that it has to be asked again."""
PEER_SECONDS_MAX: Final = 6.0
"""Longer than a call of another broker may take (flight/peers.py)."""
PEERS_US: Final = 20_000_000
"""So long others are asked again; then they count as silent."""
LOOK_US: Final = 500_000
ASKED_SEQUENCES: Final = 65_536
"""Messages that one call to another broker names."""
_NONE: Final = np.zeros(0, dtype=np.int64)
_Answer = TypeVar("_Answer")


@dataclass(slots=True)
class OtherBrokers:
    """The other brokers of the cluster, for one erasure.

    Attributes:
        silent: who did not answer: it is not asked again.
    """

    broker: BrokerPort
    topic: str
    silent: set[str] = field(default_factory=set)

    def ask(self, bodies: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """What those who answered said, each to each of these."""
        said: list[dict[str, Any]] = []
        for body in bodies:
            said += self._ask(body)
        return said

    def _ask(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        peers, clock = self.broker.peers, self.broker.clock
        if peers is None:
            return []
        cluster = self.broker.cluster(topic_of(self.topic))
        waiting = {
            node["node"]: node["url"]
            for node in cluster["nodes"]
            if node["node"] not in {cluster["node"], *self.silent}
        }
        until_us, wake = clock.now_us() + PEERS_US, Wake()
        said: list[dict[str, Any]] = []
        while waiting:
            asked = {node: peers.ask(url, ERASURE, body) for node, url in waiting.items()}
            for node, answer in asked.items():
                try:
                    said.append(answer.result(PEER_SECONDS_MAX))
                    del waiting[node]
                except (Unavailable, TimeoutError):
                    continue  # as far as it is done there, it is not done again
                except DejaQError:
                    self.silent.add(node)
                    del waiting[node]
            if waiting and clock.now_us() >= until_us:
                self.silent |= waiting.keys()
                break
            if waiting:
                clock.wait_until(clock.now_us() + LOOK_US, wake)
        return said


def erase_everywhere(
    others: OtherBrokers,
    choice: ErasureChoice,
    asked: dict[str, Any],
    *,
    known: Int64s,
    spared: Int64s,
) -> ErasedRows:
    """Erase from what this broker and the others recorded of a partition.

    Args:
        asked: `choice` as it is said to others.
        known: sequences of messages that are meant.
        spared: of those that are not, whatever is recorded of them.

    Raises:
        Unavailable: files of this broker could not be written again; ask again.
    """
    history, name, number = others.broker.history, topic_of(others.topic), choice.partition
    body = {"topic": name, "partition": number}
    gone = np.union1d(known, choice.sequences)
    if _recorded(choice).is_looked_for:
        # Many keys are more than the head of a call takes.
        told = others.ask([body | {"step": FIND, "content": json.dumps(asked).encode()}])
        found = [np.array(answer["sequences"], dtype=np.int64) for answer in told]
        found.append(_own(history, name, OWN_SECONDS, lambda: _found(history, name, choice), _NONE))
        gone = np.union1d(gone, np.concatenate(found))
    gone = np.setdiff1d(gone, spared)
    erased = _own(
        history,
        name,
        OWN_SECONDS,
        lambda: erase_told(history.files, name, number, gone),
        ErasedRows(),
    )
    parts = [gone[at : at + ASKED_SEQUENCES] for at in range(0, gone.size, ASKED_SEQUENCES)]
    rows = byte_count = 0
    for answer in others.ask(body | {"step": ERASE, "content": part.tobytes()} for part in parts):
        rows += int(answer["changes"])
        byte_count += int(answer["bytes"])
    return ErasedRows(erased.rows + rows, erased.byte_count + byte_count)


def erase_copies(others: OtherBrokers, number: int) -> None:
    """Have the others delete their copies of a partition's journal, which a server keeps."""
    if others.broker.store.is_remote:
        body = {"topic": topic_of(others.topic), "partition": number, "step": ERASE}
        others.ask([body | {"content": b""}])


def hear(
    broker: BrokerPort, body: dict[str, Any], parse: Callable[[dict[str, Any]], ErasureChoice]
) -> dict[str, Any]:
    """What another broker asks for: erase from what was recorded here, and the copy of a journal.

    In the step before it is asked which messages are meant, as far as that is recorded here.

    Args:
        parse: checks the choice, which is in the content of that step.

    Raises:
        BadRequest. Unavailable: it takes longer; ask again.
    """
    name, content = topic_of(topic_name(body)), body["content"]
    number = whole(body, "partition", 0, limits.PARTITIONS_MAX - 1)
    broker.topic(name)
    history = broker.history
    if body["step"] not in (FIND, ERASE):
        raise BadRequest("step", f"{FIND} or {ERASE}", body["step"])
    if body["step"] == FIND:
        choice = replace(parse(json_object(bytes(content), "content")), partition=number)
        found = _own(history, name, HEARD_SECONDS, lambda: _found(history, name, choice), _NONE)
        return {"sequences": found.tolist()}
    if len(content) % 8:
        raise BadRequest("content", "sequences of 8 bytes each", len(content))
    gone = distinct(np.frombuffer(content, dtype=np.int64))
    erased = ErasedRows()
    if gone.size:
        erased = _own(
            history,
            name,
            HEARD_SECONDS,
            lambda: erase_told(history.files, name, number, gone),
            erased,
        )
    journals = name if history.journals_of is None else history.journals_of(name)
    broker.store.erase_copy(journals, number)
    return {"changes": erased.rows, "bytes": erased.byte_count}


def _found(history: History, name: str, choice: ErasureChoice) -> Int64s:
    return recorded_of(history.files, name, choice.partition, _recorded(choice))


def _recorded(choice: ErasureChoice) -> RecordedChoice:
    """What history can be asked for: a letter's key there says which message it was."""
    if choice.origin:
        return RecordedChoice(_NONE, _NONE, None, choice.selection, choice.origin, choice.ids)
    return RecordedChoice(_NONE, _NONE, choice.keys, choice.selection)


def unknown_letters(broker: BrokerPort, topic: Topic, choice: ErasureChoice) -> list[str]:
    """What of dead letters that are done may be in history yet, in words: it has neither keys nor
    tags of the messages that they were."""
    if not choice.origin or _recorded(choice).is_looked_for:
        return []
    history = broker.history
    has_files = history.is_mine(topic.name) and bool(
        history.files.find(topic.name, 0, limits.INSTANT_MS_MAX)
    )
    if not topic.history and not has_files:
        return []
    return [
        f"history of {topic.name} may tell of letters that are done: it knows them by the ids of "
        "their messages, not by keys or tags"
    ]


def _own(
    history: History,
    name: str,
    seconds: float,
    call: Callable[[], _Answer],
    nothing: _Answer,
) -> _Answer:
    """What a call says that is made on the thread for history; `nothing` if none is recorded here.

    Raises:
        Unavailable.
    """
    if history.directory is None or not history.directory.is_dir() or not history.is_mine(name):
        return nothing
    outcome: list[_Answer | OSError | pa.ArrowException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except (OSError, pa.ArrowException) as wrong:
            outcome.append(wrong)

    done: Future[None] = history.submit(run)
    try:
        done.result(seconds)
    except TimeoutError:
        raise Unavailable(f"history of {name} is being written again", 500) from None
    answer = outcome[0] if outcome else OSError("our bug: the log has it")
    if isinstance(answer, OSError | pa.ArrowException):
        raise Unavailable(f"history of {name} could not be written again: {answer}", 1_000)
    return answer
