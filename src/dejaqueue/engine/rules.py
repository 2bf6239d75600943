"""Rules: the topic's settings that decide what the engine does.

Room: engine; pure. They come in by the Configure command, so that replay knows them.
Holds: `from_text(to_text(rules)) == rules`; waits depend on message and attempt alone.
See: model.Topic, which the broker makes them of.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property

import numpy as np

from dejaqueue import limits
from dejaqueue.engine.arrays import Int64s, UInt16s
from dejaqueue.model import GroupOrder, TagFilter, Topic, TopicKind

_PARTS = 1_024
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_WAITS_MAX = 64


@dataclass(frozen=True)
class Rules:
    """What a partition's engine knows of its topic. Factors are in 1/1024.

    Attributes:
        kind: what decides the order of ready messages.
        ageing_ms: of a priority topic: the wait that is worth one level; 0 = never.
        weights: fair: shares of groups that do not have 1.
        group_in_flight_max: fair: leased messages of one group at most, 0 = no limit.
        group_order: fair: which message of a group is first.
        group_runs: fair: a group gives messages in one lease at a time.
        max_attempts: deliveries after which a message is dead, 0 = no limit.
        backoff_ms, backoff_parts, backoff_max_ms, jitter_parts: first wait, what each further one
            is multiplied by, the longest, and how much of one is left away at most.
        ids_from: sequence of the first message; those of topics that had this name before, and were
            deleted, are lower.
        unnamed: False: messages are for named views alone.
        keeps: the messages are retained here, for nobody: they are in no order, and none dies.
        takes: of a named view: it has messages with such tags alone; None = all.
        take_over_rows_max: messages that one lease makes ready at most, where ready ones are in an
            order of their own; 0 = all that are due, as before there were pieces.
    """

    kind: TopicKind = TopicKind.TIMELINE
    ageing_ms: int = 0
    weights: dict[str, int] = field(default_factory=dict)
    group_in_flight_max: int = 0
    max_attempts: int = 0
    backoff_ms: int = 0
    backoff_parts: int = 2 * _PARTS
    backoff_max_ms: int = 3_600_000
    jitter_parts: int = 205
    ids_from: int = 0
    group_order: GroupOrder = GroupOrder.ARRIVAL
    unnamed: bool = True
    keeps: bool = False
    takes: TagFilter | None = None
    group_runs: bool = False
    take_over_rows_max: int = 0

    @staticmethod
    def of(topic: Topic, ids_from: int = 0, *, take_over_rows_max: int = 0) -> Rules:
        """The rules of a topic.

        Args:
            take_over_rows_max: as in the attributes, for topics where that keeps what they promise.
        """
        # Who has one message of a group at a time, or a run of it, relies on its order. What goes
        # back must come before the rest of its group, and would come after what is still to be
        # taken over.
        keeps_groups = topic.group_runs or topic.group_in_flight_max == 1
        by_pieces = topic.kind in (TopicKind.PRIORITY, TopicKind.FAIR) and not keeps_groups
        return Rules(
            topic.kind,
            topic.ageing_ms,
            topic.weights,
            topic.group_in_flight_max,
            topic.max_attempts,
            topic.backoff_ms,
            round(topic.backoff_factor * _PARTS),
            topic.backoff_max_ms,
            round(topic.backoff_jitter * _PARTS),
            ids_from,
            topic.group_order,
            topic.unnamed,
            group_runs=topic.group_runs,
            take_over_rows_max=take_over_rows_max if by_pieces else 0,
        )

    def to_text(self) -> str:
        """As JSON."""
        values = asdict(self)
        if not self.ids_from:
            del values["ids_from"]
        if self.unnamed:
            del values["unnamed"]
        if not self.keeps:
            del values["keeps"]
        if self.takes is None:
            del values["takes"]
        if not self.group_runs:
            del values["group_runs"]
        if not self.take_over_rows_max:
            del values["take_over_rows_max"]
        if self.group_order is GroupOrder.ARRIVAL:  # the text that earlier versions know
            del values["group_order"]
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> Rules:
        """The rules of `to_text`. Raises ValueError, TypeError."""
        values = json.loads(text)
        group_order = GroupOrder(values.get("group_order", GroupOrder.ARRIVAL))
        values |= {"kind": TopicKind(values["kind"]), "group_order": group_order}
        if "takes" in values:
            takes = {name: tuple(tags) for name, tags in values["takes"].items()}
            values["takes"] = TagFilter(**takes)
        return Rules(**values)

    @cached_property
    def _waits_ms(self) -> Int64s:
        """The wait after attempt 1, 2, …; all further ones are as the last."""
        waits: list[int] = []
        wait = self.backoff_ms
        while len(waits) < _WAITS_MAX:
            waits.append(min(wait, self.backoff_max_ms, limits.BACKOFF_MS_MAX))
            wait = wait * self.backoff_parts // _PARTS
        return np.array(waits, dtype=np.int64)

    def waits_ms(self, sequences: Int64s, attempts: UInt16s) -> Int64s | None:
        """How long each message waits after its attempt, shape (n,); None = none waits.

        Jitter is drawn from sequence and attempt: chance enough to part who failed together, and
        the same at every replay.
        """
        if not self.backoff_ms:
            return None
        places = np.minimum(attempts.astype(np.int64), _WAITS_MAX) - 1
        waits: Int64s = self._waits_ms[np.maximum(places, 0)]
        if self.jitter_parts:
            mixed = (sequences.astype(np.uint64) << np.uint64(16)) | attempts
            mixed *= _SPREAD
            mixed ^= mixed >> np.uint64(29)
            mixed *= _SPREAD
            parts = (mixed >> np.uint64(54)).astype(np.int64)  # 0 to 1,023
            waits = waits - waits * parts // _PARTS * self.jitter_parts // _PARTS
        return waits


TIMELINE = Rules()
"""What holds until a Configure says otherwise: the rules of a topic with nothing but a name."""
