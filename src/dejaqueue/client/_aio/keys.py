"""API keys with the asynchronous client: make, list, revoke.

Room: client. The source of _sync/keys.py (scripts/generate_sync_client.py): change this one.
See: docs/guides/security.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dejaqueue.client._aio import waiting
from dejaqueue.client.core import ClientCore
from dejaqueue.client.sending.inputs import due_ms_of


class AsyncKeys:
    """The part of a client that has to do with API keys. All of it needs the role admin."""

    _core: ClientCore

    async def create_key(
        self,
        name: str,
        grants: Sequence[str],
        *,
        ends: datetime | int | None = None,
        start_token: str | None = None,
    ) -> dict[str, Any]:
        """Make an API key. From the first one on, every call to the broker needs one.

        Args:
            name: of its holder; for lists and the audit log. `cert:shop` is for clients with a
                client certificate of the name `shop`.
            grants: texts like `produce:orders.*`, or `deny:produce:orders.eu`; roles are produce,
                consume, observe, manage, admin.
                With `own:` before the pattern, produce and manage reach the bearer's own messages.
            ends: it is refused from then on: a datetime with a time zone, or UTC milliseconds.
            start_token: for the first key of a broker that others can reach: what is in the file
                that its log names.

        Returns:
            `api_key`, which is shown this once and kept nowhere (a certificate has none); and what
            `api_keys` tells of it.

        Raises:
            BadRequest: a value is wrong. Refused: the name is taken, or it is the first key and
                not for all topics an admin's. Forbidden: no admin, or a first key from elsewhere
                than the broker's machine, or without its start-up token.
        """
        body: dict[str, Any] = {"name": name, "grants": list(grants)}
        if ends is not None:
            body["ends_ms"] = due_ms_of(ends, "ends")
        if start_token is not None:
            body["start_token"] = start_token
        return await waiting.result(self._core.transport.action("create_key", body))

    async def api_keys(self) -> list[dict[str, Any]]:
        """API keys that were not revoked, oldest first.

        Returns:
            For each: id, name, grants, created_ms, ends_ms (None = never), ended.
        """
        answer = await waiting.repeat(self._core, "list_keys", {})
        return list(answer["keys"])

    async def revoke_key(self, key: str, *, force: bool = False) -> dict[str, Any]:
        """Have an API key refused from now on, on streams that are open, too.

        Args:
            key: its id or its name.
            force: also if it is the last admin key.

        Returns:
            What `api_keys` told of it.

        Raises:
            BadRequest: there is no such key. Refused: it is the last admin key.
        """
        body = {"key": key, "force": force}
        return await waiting.result(self._core.transport.action("revoke_key", body))
