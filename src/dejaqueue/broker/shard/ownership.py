"""Ownership: whether journals may be opened and written here now.

Room: broker. A port: in a cluster its node is behind it; a broker that is alone owns all it has.
Holds: what is asked here is what this broker believes. What keeps two owners apart is the journal's
compare-and-append alone, so a wrong answer costs an attempt, never a message.
See: cluster_port.py; cluster/node.py.
"""

from __future__ import annotations

from typing import Protocol

from dejaqueue.errors import DejaQError


class Ownership(Protocol):
    """Who owns the journals of one topic, or of one shard of it, as far as is known here."""

    def refusal(self) -> DejaQError | None:
        """Why they must not be opened or written here now; None = they are this broker's."""
        ...

    def fenced(self) -> None:
        """Another owner wrote to one of them. Returns at once: a worker calls it."""
        ...

    def end(self) -> None:
        """What was served by it is let go of, and nothing is this broker's by it any more: others
        may have owned them before this broker does again, by another ownership."""
        ...


class LoneOwnership:
    """The ownership of a broker that is alone."""

    def refusal(self) -> DejaQError | None:
        """Nothing is another's."""
        return None

    def fenced(self) -> None:
        """Somebody wrote to a journal of a lone broker: reading it again says what is wrong."""

    def end(self) -> None:
        """Nobody else serves what this broker does."""
