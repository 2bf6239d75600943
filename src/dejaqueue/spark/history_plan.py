"""What brokers of a cluster recorded of one topic, put together: each change once.

Room: spark. Values in, values out; no connection.
Holds: a position of the journal is read from one file only, though several brokers recorded it; a
gap is left out if any broker recorded what it says is missing, and told once otherwise.
See: history.py, which asks the brokers; broker/history/files.py for what a file covers.

A broker that takes over a partition reads its journal again from the last snapshot, and records
what it reads; of what lies before that it notes a gap. The broker before has that, and often some
of the rest as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dejaqueue.schema.stretches import Stretch, without


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one broker has of a topic, as its answer says.

    Attributes:
        url: of the broker.
        files: each with partition, name, hour_ms, first, last, gaps.
        recorded: up to which position, by partition.
    """

    url: str
    files: Sequence[dict[str, Any]]
    recorded: dict[int, int]

    @classmethod
    def of(cls, url: str, answer: dict[str, Any]) -> Recorded:
        """From the answer of `history_files`."""
        ends = {int(number): last for number, last in answer["recorded"].items()}
        return cls(url, answer["files"], ends)


@dataclass(frozen=True, slots=True)
class Share:
    """What to read of a file.

    Attributes:
        positions: where changes are taken from, ascending.
        gaps: positions of the gaps that are told.
    """

    url: str
    file: dict[str, Any]
    positions: list[Stretch]
    gaps: list[int]


def plan(brokers: Sequence[Recorded]) -> list[Share]:
    """What to read of which file; files of which nothing is read are left out."""
    numbers = sorted({file["partition"] for broker in brokers for file in broker.files})
    return [share for number in numbers for share in _plan_partition(brokers, number)]


def _plan_partition(brokers: Sequence[Recorded], number: int) -> list[Share]:
    files = [
        Share(broker.url, file, [], [])
        for broker in brokers
        for file in broker.files
        if file["partition"] == number
    ]
    files.sort(key=lambda share: (share.file["first"], -share.file["last"], share.url))
    pieces = sorted(
        (first, -last, place)
        for place, share in enumerate(files)
        for first, last in without([(share.file["first"], share.file["last"])], _gaps(share))
    )
    done = 0
    for first, minus_last, place in pieces:
        if -minus_last > done:
            files[place].positions.append((max(first, done + 1), -minus_last))
            done = -minus_last
    known = [
        piece
        for broker in brokers
        for piece in without([(1, broker.recorded.get(number, 0))], _all_gaps(broker, number))
    ]
    for share in sorted(files, key=lambda share: share.file["last"]):
        for gap in _gaps(share):
            if without([gap], known):
                share.gaps.append(gap[1])
                known.append(gap)
    return [share for share in files if share.positions or share.gaps]


def _gaps(share: Share) -> list[Stretch]:
    return [(first, last) for first, last in share.file["gaps"]]


def _all_gaps(broker: Recorded, number: int) -> list[Stretch]:
    files = [file for file in broker.files if file["partition"] == number]
    return [(first, last) for file in files for first, last in file["gaps"]]
