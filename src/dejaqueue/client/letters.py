"""Dead letters: to look at, to send back, to throw away; what both clients share.

Room: client. Requests and answers as values; calls block, the faces wait for them.
See: _aio/letters.py for the calls; schema/dead_letters.py for what a letter says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.client.browsing import NEXT, Caller
from dejaqueue.client.results import Redriven
from dejaqueue.client.sending.inputs import int64s_of
from dejaqueue.errors import BadRequest
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema import messages
from dejaqueue.schema.dead_letters import REASON, header_value
from dejaqueue.topic_names import check_topic_name

PAGE_IDS = 2_000
"""Ids named in one call."""


def check_choice(topic: str, reason: str | None, group: str | None) -> dict[str, Any]:
    """The fields of a request about these letters. Raises BadRequest."""
    for name, value in (("reason", reason), ("group", group)):
        if value is not None and not isinstance(value, str):
            raise BadRequest(name, "a text", value)
    return {"topic": check_topic_name(topic), "reason": reason, "group": group}


def check_count(field: str, count: int | None) -> None:
    """Raise BadRequest if this is no number of letters."""
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
        raise BadRequest(field, "a whole number, not negative", count)


def find(caller: Caller, choice: dict[str, Any], limit: int) -> pa.Table:
    """Letters as they are, page by page until there are `limit` of them."""
    check_count("limit", limit)
    ticket = {"op": "peek", "topic": choice["topic"], "state": "scheduled"}
    if choice["group"] is not None:
        ticket["group"] = choice["group"]
    tables: list[pa.Table] = [messages.PEEK.empty_table()]
    after: Any = None
    while limit > 0:
        rows_max = min(limit, limits.PEEK_ROWS_MAX)
        page = caller.rows({**ticket, "limit": rows_max, "after": after}).result()
        following = (page.schema.metadata or {}).get(NEXT)
        if choice["reason"] is not None and page.num_rows:
            reasons = header_value(page["headers"].combine_chunks(), REASON)
            page = page.filter(pc.equal(reasons, choice["reason"]))
        tables.append(page.replace_schema_metadata(None))
        limit -= page.num_rows
        if following is None:
            break
        after = json.loads(following)
    return pa.concat_tables(tables, promote_options="default")


def move(
    caller: Caller,
    choice: dict[str, Any],
    ids: Sequence[int] | npt.NDArray[Any] | None,
    count: int | None,
) -> Redriven:
    """Send letters away, or throw them away, until nothing is left to look at."""
    check_count("count", count)
    moved = left = 0
    for part in _parts(choice, ids):
        after: Any = None
        while count is None or moved < count:
            limit = None if count is None else count - moved
            body = {**part, "limit": limit, "after": after}
            answer = caller.action("redrive", body).result()
            moved, left = moved + int(answer["moved"]), left + int(answer["left"])
            after = answer["next"]
            if after is None:
                break
    return Redriven(moved, left)


def _parts(
    choice: dict[str, Any], ids: Sequence[int] | npt.NDArray[Any] | None
) -> list[dict[str, Any]]:
    """The choice, or as many as it takes to name all ids."""
    if ids is None:
        return [choice]
    named = int64s_of(ids, "ids").tolist()
    return [{**choice, "ids": named[at : at + PAGE_IDS]} for at in range(0, len(named), PAGE_IDS)]
