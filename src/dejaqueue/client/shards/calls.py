"""Calls about a topic in shards: each shard is asked, and the answers are made one.

Room: client. Blocks: it runs on a thread that may.
Holds: an answer says of all shards what it says of one topic; where it comes in pages, no message
is left out and none comes twice; what cannot be done across shards is refused, not done in part.
See: client/routed_transport.py, which asks; docs/adr/0016-a-topic-in-shards.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.digits import number_of
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.model import TopicKind
from dejaqueue.schema.shards import shards_of_texts
from dejaqueue.topic_names import shard_name
from dejaqueue.wire.descriptors import check_span

Body = dict[str, Any]
NEXT = b"next"
"""Where a page of rows says how to go on."""
PACES = ("enqueued_10s", "acked_10s")
"""Lists of a topic's stats, by stretches of time that all brokers begin at once."""


class ShardCalls:
    """Calls about one topic in shards.

    Args:
        action: one call about a topic or a shard.
        rows: rows of a topic or a shard, by a ticket.
    """

    def __init__(
        self,
        topic: str,
        spread: int,
        action: Callable[[str, Body], Future[Body]],
        rows: Callable[[Body], Future[pa.Table]],
    ) -> None:
        self._topic = topic
        self._spread = spread
        self._action = action
        self._rows = rows

    def act(self, name: str, body: Body) -> Body:
        """One action. Raises what a shard says, Refused."""
        merged = _MERGES.get(name)
        if merged is not None:
            field = "topic" if "topic" in body else "name"
            return merged(self, name, body, field)
        raise Refused(f"topic {self._topic} is spread over brokers: {name} is not asked of shards")

    # --- asking -------------------------------------------------------------------------------

    def _shard(self, shard: int) -> str:
        return shard_name(self._topic, shard, self._spread)

    def _one(self, name: str, body: Body, field: str, shard: int) -> Body:
        return self._action(name, body | {field: self._shard(shard)}).result()

    def _each(self, name: str, body: Body, field: str) -> list[Body]:
        """All shards, at once; their answers in order."""
        return self._some(name, dict.fromkeys(range(self._spread), body), field)

    def _some(self, name: str, bodies: dict[int, Body], field: str) -> list[Body]:
        asked = [
            self._action(name, body | {field: self._shard(shard)}) for shard, body in bodies.items()
        ]
        return [answer.result() for answer in asked]

    # --- looking ------------------------------------------------------------------------------

    def stats(self, name: str, body: Body, field: str) -> Body:
        """Sums, and each partition's own numbers."""
        answers = self._each(name, body, field)
        count = sum(len(answer["partitions"]) for answer in answers)
        partitions: list[Any] = [None] * count
        consumers = []
        for shard, answer in enumerate(answers):
            partitions[shard :: self._spread] = answer["partitions"]
            consumers += [one | {"shard": shard} for one in answer["consumers"]]
        times = ("next_due_ms", "retained_from_ms")
        apart = ("topic", *times, "consumers", "partitions", *PACES, "lateness_p99_us")
        sums = {n: sum(one.get(n, 0) for one in answers) for n in answers[0] if n not in apart}
        sums |= {name: _sums_of_lists([one.get(name, []) for one in answers]) for name in PACES}
        known = {n: [one[n] for one in answers if one.get(n, -1) >= 0] for n in times}
        return {
            "topic": self._topic,
            **sums,
            **{n: min(found, default=-1) for n, found in known.items()},
            "lateness_p99_us": max(one.get("lateness_p99_us", -1) for one in answers),
            "consumers": consumers,
            "partitions": partitions,
        }

    def listed(self, name: str, body: Body, field: str) -> Body:
        """Answers that are lists: scan_ranges, history_files, transactions."""
        return self._joined(self._each(name, body, field))

    def assignments(self, name: str, body: Body, field: str) -> Body:
        """Who has which partition; who has none in any shard stands by."""
        answers = self._each(name, body, field)
        idle = set.intersection(*(set(answer["standby"]) for answer in answers))
        return self._joined(answers) | {"standby": sorted(idle)}

    def _joined(self, answers: list[Body]) -> Body:
        """All rows of all lists."""
        joined: Body = dict(answers[0])
        for key, value in answers[0].items():
            if isinstance(value, list):
                joined[key] = [row for answer in answers for row in answer[key]]
        if "partitions" in joined:
            joined["partitions"].sort(key=lambda row: row["partition"])
        if "topic" in joined:
            joined["topic"] = self._topic
        return joined

    def histogram(self, name: str, body: Body, field: str) -> Body:
        """Sums of what is due in each stretch."""
        answers = self._each(name, body, field)
        counts = np.sum([answer["counts"] for answer in answers], axis=0, dtype=np.int64)
        error_max = sum(answer["error_max"] for answer in answers)
        return answers[0] | {"counts": counts.tolist(), "error_max": error_max}

    def due(self, name: str, body: Body, field: str) -> Body:
        """Sums of what is due soon."""
        answers = self._each(name, body, field)
        sums = {key: sum(answer[key] for answer in answers) for key in _SUMS_OF_DUE}
        return answers[0] | sums | {"topic": self._topic}

    def counts(self, name: str, body: Body, field: str) -> Body:
        """Sums by state, group or tag; most first."""
        by = body.get("by", "state")
        if by == "state":
            answers = self._each(name, body, field)
            states = [row["state"] for row in answers[0]["rows"]]
            sums = np.sum([[row["count"] for row in one["rows"]] for one in answers], axis=0)
            rows = [{"state": s, "count": n} for s, n in zip(states, sums.tolist(), strict=True)]
            return {"rows": rows, "next": None}
        limit, after = self._check_page(name, body, field)
        count_of: dict[str, int] = {}
        for shard in range(self._spread):
            for row in self._all_counts(name, {"by": by}, field, shard):
                count_of[row[by]] = count_of.get(row[by], 0) + row["count"]
        ranked = sorted((-count, word) for word, count in count_of.items())
        if after is not None:
            ranked = [pair for pair in ranked if pair > (-after["count"], after["name"])]
        rows = [{by: word, "count": -count} for count, word in ranked[:limit]]
        more = len(ranked) > limit
        following = {"count": rows[-1]["count"], "name": rows[-1][by]} if more else None
        return {"rows": rows, "next": following}

    def _check_page(self, name: str, body: Body, field: str) -> tuple[int, Body | None]:
        """Where a page of counts begins and how long it is, as the first shard would take it."""
        self._one(name, body, field, 0)
        return int(body.get("limit") or 100), body.get("after")

    def _all_counts(self, name: str, body: Body, field: str, shard: int) -> list[Body]:
        rows: list[Body] = []
        after: Any = None
        while True:
            page = body | {"limit": limits.COUNTS_ROWS_MAX, "after": after}
            answer = self._one(name, page, field, shard)
            rows += answer["rows"]
            after = answer["next"]
            if after is None:
                return rows

    def noted(self, name: str, body: Body, field: str) -> Body:
        """Notes about the topic as a whole, which the first shard keeps: note_write, writes."""
        return self._one(name, body, field, 0)

    # --- changing, page by page ---------------------------------------------------------------

    def in_pages(self, name: str, body: Body, field: str) -> Body:
        """One shard after the other: move_where, cancel_where, redrive, seek."""
        if body.get("dry_run"):
            answers = self._each(name, body, field)
            return {"count": sum(answer["count"] for answer in answers), "next": None}
        shard, after = self._place(body.get("after"))
        answer = self._one(name, body | {"after": after}, field, shard)
        if answer["next"] is not None:
            return answer | {"next": {"shard": shard, "after": answer["next"]}}
        if shard + 1 < self._spread:
            return answer | {"next": {"shard": shard + 1, "after": None}}
        return answer

    def erase(self, name: str, body: Body, field: str) -> Body:
        """One shard after the other; numbers and lists are of all that were asked so far."""
        given = body.get("after")
        before: Body = {}
        if isinstance(given, dict) and isinstance(given.get("before"), dict):
            before = given["before"]
            given = {key: value for key, value in given.items() if key != "before"}
        shard, after = self._place(given)
        answer = self._one(name, body | {"after": after}, field, shard)
        following = answer.pop("next")
        joined = _erased_before(before, answer)
        if following is not None:
            return joined | {"next": {"shard": shard, "after": following, "before": before}}
        if shard + 1 < self._spread:
            return joined | {"next": {"shard": shard + 1, "after": None, "before": joined}}
        return joined | {"next": None}

    def _place(self, after: Any) -> tuple[int, Any]:
        if after is None:
            return 0, None
        if isinstance(after, dict) and set(after) == {"shard", "after"}:
            shard = after["shard"]
            if type(shard) is int and 0 <= shard < self._spread:
                return shard, after["after"]
        raise BadRequest("after", "the `next` of the answer before", after)

    # --- claims -------------------------------------------------------------------------------

    def claim(self, name: str, body: Body, field: str) -> Body:
        """Of one partition."""
        return self._one(name, body, field, self.shard_of_partition(body.get("partition")))

    def shard_of_partition(self, number: Any) -> int:
        """Which shard has a partition. Raises BadRequest."""
        if type(number) is not int:
            raise BadRequest("partition", "a number", number)
        return check_span("partition", number) % self._spread

    def message_history(self, name: str, body: Body, field: str) -> Body:
        """Of one message: the shard that has its partition."""
        message_id = body.get("id")
        if type(message_id) is not int:
            raise BadRequest("id", "the id of a message", message_id)
        shard = self.shard_of_partition(message_id >> limits.SEQUENCE_BITS)
        return self._one(name, body, field, shard)

    def claims(self, name: str, body: Body, field: str) -> Body:
        """Of several partitions."""
        given = body.get("claims")
        limit = "an object of lists of claims, by partition"
        if not isinstance(given, dict):
            raise BadRequest("claims", limit, given)
        bodies: dict[int, Body] = {}
        for partition, numbers in given.items():
            number = number_of(partition)
            if number is None:
                raise BadRequest("claims", limit, given)
            shard = number % self._spread
            bodies.setdefault(shard, body | {"claims": {}})["claims"][partition] = numbers
        lost: Body = {}
        for answer in self._some(name, bodies, field):
            lost |= answer["lost"]
        return {"lost": lost}

    # --- cron ---------------------------------------------------------------------------------

    def cron_put(self, name: str, body: Body, field: str) -> Body:
        """Each entry goes where its name belongs."""
        given = body.get("entries")
        if not isinstance(given, list) or len(given) > limits.CRON_CALL_ENTRIES_MAX:
            most = limits.CRON_CALL_ENTRIES_MAX
            raise BadRequest("entries", f"a list of at most {most}", given)
        names = [one.get("name") if isinstance(one, dict) else None for one in given]
        return self._by_name(name, body, field, "entries", names, given)

    def cron_names(self, name: str, body: Body, field: str) -> Body:
        """Entries that are named: paused, resumed, dropped."""
        names = body.get("names")
        if not isinstance(names, list):
            raise BadRequest("names", "a list", names)
        return self._by_name(name, body, field, "names", names, names)

    def _by_name(
        self, name: str, body: Body, field: str, part: str, names: list[Any], rows: list[Any]
    ) -> Body:
        for one in names:
            if not isinstance(one, str):
                raise BadRequest("entry.name", "a text", one)
        bodies: dict[int, Body] = {}
        for shard, row in zip(shards_of_texts(names, self._spread), rows, strict=True):
            bodies.setdefault(shard, body | {part: []})[part].append(row)
        answers = self._some(name, bodies or {0: body}, field)
        if "dropped" in answers[0]:
            return {"dropped": sum(answer["dropped"] for answer in answers)}
        entries = {entry["name"]: entry for answer in answers for entry in answer["entries"]}
        return {"entries": [entries[one] for one in names]}

    def cron_named(self, name: str, body: Body, field: str) -> Body:
        """One entry: shown, run, its next firings."""
        named = body.get("name")
        shard = shards_of_texts([named], self._spread)[0] if isinstance(named, str) else 0
        return self._one(name, body, field, shard)

    def cron_list(self, name: str, body: Body, field: str) -> Body:
        """A page of entries by name."""
        answers = self._each(name, body, field)
        entries = [entry for answer in answers for entry in answer["entries"]]
        limit = body.get("limit", 1_000)
        return {"entries": sorted(entries, key=lambda entry: str(entry["name"]))[:limit]}

    # --- rows ---------------------------------------------------------------------------------

    def peek(self, ticket: Body) -> pa.Table:
        """A page of messages of all shards; where the next begins is in its metadata."""
        number = ticket.get("partition")
        if number is not None:
            shard = self._shard(self.shard_of_partition(number))
            return self._rows(ticket | {"topic": shard}).result()
        asked = [self._rows(ticket | {"topic": self._shard(s)}) for s in range(self._spread)]
        pages = [answer.result() for answer in asked]
        ends = [(page.schema.metadata or {}).get(NEXT) for page in pages]
        reached = [json.loads(end) for end in ends if end is not None]
        # Brokers of two versions may have a column more or less.
        parts = [page.replace_schema_metadata(None) for page in pages]
        table = pa.concat_tables(parts, promote_options="default")
        if not table.num_rows and not reached:
            return table
        names = ["due", "id"] if self._is_by_time(ticket) else ["id"]
        table = table.sort_by([(name, "ascending") for name in names])
        if ticket.get("ids") is not None or ticket.get("keys") is not None:
            return table
        return _page(table, names, reached, int(ticket.get("limit") or 100))

    def _is_by_time(self, ticket: Body) -> bool:
        """True if pages are by due time (broker/calls/peek.py); by id otherwise."""
        if ticket.get("ids") is not None or ticket.get("keys") is not None:
            return True
        if ticket.get("state") not in (None, "scheduled", "ready"):
            return False
        kind = self._action("describe_topic", {"name": self._topic}).result()["kind"]
        return kind in (TopicKind.TIMELINE, TopicKind.CRON)


def _page(table: pa.Table, names: list[str], reached: list[Body], limit: int) -> pa.Table:
    """What may be shown of the first rows of all shards: nothing behind what one has not looked
    at, and no more than was asked for."""
    end = min((tuple(place[name] for name in names) for place in reached), default=None)
    if end is not None:
        columns = [table.column(name).to_numpy() for name in names]
        before = columns[-1] <= end[-1]
        if len(names) > 1:
            before = (columns[0] < end[0]) | ((columns[0] == end[0]) & before)
        table = table.filter(pa.array(before))
    if table.num_rows > limit:
        table = table.slice(0, limit)
        last = table.slice(limit - 1).to_pylist()[0]
        end = tuple(last[name] for name in names)
    if end is None:
        return table
    following = json.dumps(dict(zip(names, end, strict=True)))
    return table.replace_schema_metadata({NEXT: following})


_Merge = Callable[[ShardCalls, str, Body, str], Body]


def _sums_of_lists(lists: list[list[int]]) -> list[int]:
    """Sums of what ends at the same time: a shorter list began later.

    >>> _sums_of_lists([[1, 2, 3], [10], []])
    [1, 2, 13]
    """
    longest = max(map(len, lists), default=0)
    sums = np.zeros(longest, dtype=np.int64)
    for one in lists:
        if one:
            sums[-len(one) :] += one
    return [int(count) for count in sums]


def _erased_before(before: Body, answer: Body) -> Body:
    """What was erased of several shards.

    >>> _erased_before({"found": 1, "letters": ["a.dead"]}, {"found": 2, "letters": ["a.dead"]})
    {'found': 3, 'letters': ['a.dead']}
    """
    joined = dict(before)
    for name, value in answer.items():
        known = before.get(name)
        if isinstance(value, list):
            joined[name] = [*(known or ()), *(one for one in value if one not in (known or ()))]
        else:
            joined[name] = value + (known or 0)
    return joined


_SUMS_OF_DUE = ("due", "ready", "scheduled", "leased", "error_max")
_MERGES: dict[str, _Merge] = {
    "stats": ShardCalls.stats,
    "scan_ranges": ShardCalls.listed,
    "history_files": ShardCalls.listed,
    "message_history": ShardCalls.message_history,
    "transactions": ShardCalls.listed,
    "assignments": ShardCalls.assignments,
    "counts": ShardCalls.counts,
    "due": ShardCalls.due,
    "histogram": ShardCalls.histogram,
    "note_write": ShardCalls.noted,
    "writes": ShardCalls.noted,
    "move_where": ShardCalls.in_pages,
    "cancel_where": ShardCalls.in_pages,
    "redrive": ShardCalls.in_pages,
    "seek": ShardCalls.in_pages,
    "erase": ShardCalls.erase,
    "claim": ShardCalls.claim,
    "extend_claims": ShardCalls.claims,
    "ack_claims": ShardCalls.claims,
    "cron_put": ShardCalls.cron_put,
    "cron_pause": ShardCalls.cron_names,
    "cron_drop": ShardCalls.cron_names,
    "cron_get": ShardCalls.cron_named,
    "cron_run": ShardCalls.cron_named,
    "cron_next": ShardCalls.cron_named,
    "cron_list": ShardCalls.cron_list,
}
