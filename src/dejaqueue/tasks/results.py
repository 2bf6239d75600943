"""Results of tasks: what a function returned or raised, kept for a life in a topic of their own.

Room: tasks. The topic is a timeline in which a result is due when its life ends: until then it
is read by its key and never leased; then a worker takes it away.
Holds: the last attempt's result replaces an earlier one; what is not there is not known to be
missing for good before the call is neither waiting nor at work.
See: docs/adr/0042-results-are-due-at-the-end-of-their-life.md.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dejaqueue.errors import BadRequest, DejaQError, TopicUnknown

if TYPE_CHECKING:
    from dejaqueue.client import Client

RESULT_BYTES_MAX = 65_536
"""A result is small; what is large belongs where the program keeps its data."""
TRACEBACK_BYTES_MAX = 16_384


class TaskFailed(DejaQError):
    """The task is dead: its function raised, and is not tried again.

    Attributes:
        kind: class of the error that was raised, by its name.
        traceback: where, as Python prints it; "" = not known.
    """

    def __init__(self, kind: str, text: str, trace: str = "") -> None:
        super().__init__(f"{kind}: {text}" if text else kind)
        self.kind, self.traceback = kind, trace


class ResultMissing(DejaQError):
    """There is no result: none is kept of this task, its life is over, or it was cancelled."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is kept of a call that has ended.

    Attributes:
        value: what the function returned, as a value of JSON.
        failure: or why it is dead.
    """

    value: Any = None
    failure: TaskFailed | None = None

    def to_json(self) -> dict[str, Any]:
        """As a value of JSON. Raises BadRequest if it is too large."""
        if self.failure is None:
            return {"value": self.value}
        return {
            "error": self.failure.kind,
            "text": str(self.failure),
            "traceback": self.failure.traceback,
        }

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Outcome:
        """What `to_json` said."""
        if "error" not in said:
            return cls(said.get("value"))
        text = str(said["text"]).removeprefix(f"{said['error']}: ")
        return cls(failure=TaskFailed(said["error"], text, said["traceback"]))


def failure_of(error: BaseException) -> TaskFailed:
    """An error as it is kept, with the end of its traceback."""
    lines = "".join(traceback.format_exception(error)).encode(errors="replace")
    text = " ".join(str(error).split())[:2_000]
    shown = lines[-TRACEBACK_BYTES_MAX:].decode(errors="ignore")
    return TaskFailed(type(error).__name__, text, shown)


class Results:
    """The results of one application.

    Args:
        topic: where they are kept; made when it is first needed.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def create(self, client: Client) -> None:
        """Make the topic, if it is not there."""
        client.create_topic(self.topic, on_duplicate="replace", max_payload_bytes=RESULT_BYTES_MAX)

    def key(self, topic: str, call_id: int) -> str:
        """The key of a call's result."""
        return f"{topic[-200:]}/{call_id}"

    def put(
        self, client: Client, topic: str, call_id: int, outcome: Outcome, life_s: float
    ) -> None:
        """Keep what became of a call; durable when this returns.

        Raises:
            BadRequest: it is larger than RESULT_BYTES_MAX.
        """
        said = outcome.to_json()
        client.send(self.topic, json=said, key=self.key(topic, call_id), delay=life_s)

    def get(self, client: Client, topic: str, call_id: int, now_ms: int) -> Outcome | None:
        """What became of a call; None = nothing is kept of it."""
        try:
            found = client.get(self.topic, key=self.key(topic, call_id))
        except TopicUnknown:
            return None
        # One that is due has lived, whether a worker has taken it away or not.
        if found is None or found.payload is None or found.due_ms <= now_ms:
            return None
        return Outcome.from_json(found.json())

    def sweep(self, client: Client) -> None:
        """Take away those whose life is over, until the client is drained. Blocks."""
        with client.consume_batches(self.topic, auto_ack=True, prefetch=1_000) as over:
            for _ in over:
                pass


def check_life(life_s: float | None) -> None:
    """Raise BadRequest if results cannot be kept for so long."""
    if life_s is not None and not 0 < life_s <= 366 * 86_400:
        raise BadRequest("result", "a length of time up to a year", life_s)
