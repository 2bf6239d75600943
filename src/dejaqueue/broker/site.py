"""Site: whether this broker is the active one, stands by for another one, or was replaced by one.

Room: broker. Any thread; what is asked here is asked on the path of messages, so it is one look at
an attribute.
Holds: who was replaced never becomes active again; a broker that stands by changes nothing by
itself.
See: standby/standby.py, which makes one active; backup/archiver.py, which meets the fence;
docs/adr/0084-a-standby-follows-the-archive.md.
"""

from __future__ import annotations

from dejaqueue.backup.fence import Fence
from dejaqueue.broker.shard.ownership import LoneOwnership
from dejaqueue.errors import DejaQError, NotActive


class Site(LoneOwnership):
    """The part of a lone broker in two sites; also the ownership of all its journals.

    >>> site = Site()
    >>> site.check_changes()
    >>> site.begin_standby("s3://bucket/dejaq")
    >>> site.check_changes()
    Traceback (most recent call last):
    ...
    dejaqueue.errors.NotActive: this is a standby of the broker whose archive is \
s3://bucket/dejaq: send and consume there; if it is lost: `dejaq promote` at this one
    """

    def __init__(self) -> None:
        self._followed = ""
        self._replaced: NotActive | None = None

    @property
    def stands_by(self) -> bool:
        """Whether what its journals get comes from an archive alone."""
        return bool(self._followed)

    def begin_standby(self, url: str) -> None:
        """Stand by for the broker whose archive is there."""
        self._followed = url

    def become_active(self) -> None:
        """Serve: nobody else does any more."""
        self._followed = ""

    def replace(self, fence: Fence) -> None:
        """Another broker has taken the place of this one."""
        self._replaced = NotActive(
            f"this broker was replaced: {fence.told()}; send and consume there"
        )

    def refusal(self) -> DejaQError | None:
        """Why nothing may be opened or written here now; None = it may. See Ownership."""
        return self._replaced

    def check_reads(self) -> None:
        """Raise NotActive if what is here may be out of date for ever."""
        if self._replaced is not None:
            raise self._replaced.with_traceback(None)

    def check_changes(self) -> None:
        """Raise NotActive unless this is the active one."""
        self.check_reads()
        if self._followed:
            raise NotActive(
                f"this is a standby of the broker whose archive is {self._followed}: send and "
                "consume there; if it is lost: `dejaq promote` at this one"
            )
