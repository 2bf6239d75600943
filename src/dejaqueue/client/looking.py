"""Calls that may be made twice, and are made again while no broker answers.

They change nothing, or do then what they do once.

Room: client. Blocks: the asynchronous client uses it on other threads.
Holds: only what may be asked twice goes this way; what a broker refuses is raised at once.
See: core.py, which says for how long; browsing.py, message_history.py, erasure.py, which ask.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from dejaqueue.client.core import ClientCore


class Looks:
    """The part of a transport that browsing needs, with a client's patience."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core

    def action(self, name: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        """One call; waits for its answer. Raises Unavailable: nobody answered for so long."""
        answer: Future[dict[str, Any]] = Future()
        answer.set_result(self._core.call(name, body))
        return answer

    def rows(self, ticket: dict[str, Any]) -> Future[pa.Table]:
        """Rows without leasing; waits for them. Raises as `action`."""
        table: Future[pa.Table] = Future()
        table.set_result(self._core.rows(ticket))
        return table
