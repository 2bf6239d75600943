"""Producers: the first answers to their last batches, so that a repeated batch gets the same.

Room: engine; pure, memory only.
Holds: at most PRODUCER_WINDOW_BATCHES answers per producer and PRODUCERS_MAX producers; which of
    them are forgotten depends on the commands alone.
See: rule 10.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dejaqueue import limits
from dejaqueue.engine.commands import SubBatch


@dataclass(frozen=True, slots=True)
class Answer:
    """What a batch was answered: its accepted rows got sequences from `first_sequence` on.

    Attributes:
        first_sequence: of its first accepted row.
        count: accepted rows.
        refused_indices, refused_ids, refused_statuses, strays: as in `commands.SubBatch`.
    """

    first_sequence: int
    count: int
    refused_indices: tuple[int, ...] = ()
    refused_ids: tuple[int, ...] = ()
    refused_statuses: tuple[int, ...] = ()
    strays: tuple[int, ...] = field(default=(), repr=False)
    """Not in `repr`: the hash of a state is of that, and older than this."""

    @property
    def rows(self) -> int:
        """Rows of the batch, accepted or not."""
        return self.count + len(self.refused_indices)


class Producer:
    """The answers to one producer, oldest first, and when it was last heard."""

    __slots__ = ("answers", "last_ms")

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.last_ms = 0


class Producers:
    """All producers that a partition remembers, the longest silent one first."""

    def __init__(self) -> None:
        self.by_name: dict[str, Producer] = {}

    def answer(self, name: str, number: int) -> Answer | None:
        """The answer to this batch, None if it is new (or forgotten)."""
        producer = self.by_name.get(name)
        return producer.answers.get(number) if producer is not None else None

    def remember(self, batch: SubBatch, first_sequence: int, now_ms: int) -> None:
        """Keep the answer to a batch, and forget who and what is too old."""
        producer = self.by_name.pop(batch.producer, None) or Producer()
        self.by_name[batch.producer] = producer  # re-inserted: the dict is in order of last use
        producer.last_ms = now_ms
        answers = producer.answers
        answers.pop(batch.number, None)
        answers[batch.number] = Answer(
            first_sequence,
            batch.count,
            batch.refused_indices,
            batch.refused_ids,
            batch.refused_statuses,
            batch.strays,
        )
        if len(answers) > limits.PRODUCER_WINDOW_BATCHES:
            del answers[next(iter(answers))]
        self._forget_silent(now_ms)

    def shift(self, by_ms: int, now_ms: int) -> None:
        """The clock was wrong by this much: every producer stays silent for as long as before."""
        for producer in self.by_name.values():
            if by_ms < 0 or producer.last_ms > now_ms:
                producer.last_ms -= by_ms

    def _forget_silent(self, now_ms: int) -> None:
        heard_after_ms = now_ms - limits.PRODUCER_IDLE_MS_MAX
        while True:
            name, oldest = next(iter(self.by_name.items()))
            if len(self.by_name) <= limits.PRODUCERS_MAX and oldest.last_ms > heard_after_ms:
                return
            del self.by_name[name]
