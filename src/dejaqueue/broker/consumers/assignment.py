"""Exclusive assignment: which consumer gets which partition.

Room: broker; pure.
Holds: no consumer has two partitions more than another; as few partitions as possible change hands;
the same arguments give the same answer.
See: dispatch.py, which keeps to it; docs/guides/exclusive-consumers.md.
"""

from __future__ import annotations

from collections.abc import Sequence

NOBODY = -1


def assign(holders: Sequence[int], consumers: Sequence[int]) -> list[int]:
    """Who is to have each partition.

    Args:
        holders: for each partition the number of who has it, NOBODY if no one does; they may be
            gone.
        consumers: numbers of those that are there, the longest there first.

    Returns:
        For each partition the number of a consumer; NOBODY if there is none. With more consumers
        than partitions some get nothing: they stand by.

    >>> assign([7, 7, 7, NOBODY], [7, 9])
    [7, 7, 9, 9]
    """
    if not consumers:
        return [NOBODY] * len(holders)
    kept: dict[int, list[int]] = {consumer: [] for consumer in consumers}
    for partition, holder in enumerate(holders):
        if holder in kept:
            kept[holder].append(partition)
    share, more = divmod(len(holders), len(consumers))
    # Those who have most keep most: who must give anyway gives least.
    by_most = sorted(consumers, key=lambda consumer: -len(kept[consumer]))
    given = [NOBODY] * len(holders)
    wanting: list[int] = []
    for rank, consumer in enumerate(by_most):
        quota = share + (rank < more)
        stays = kept[consumer][:quota]
        for partition in stays:
            given[partition] = consumer
        wanting += [consumer] * (quota - len(stays))
    free = [partition for partition, consumer in enumerate(given) if consumer == NOBODY]
    for partition, consumer in zip(free, wanting, strict=True):
        given[partition] = consumer
    return given
