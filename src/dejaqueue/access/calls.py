"""The table of calls: what each is called, what its body holds, who may make it, what it does.

Room: access. Pure values. The functions are in broker/calls/calls.py, each under its call's name.
Holds: a call that is not in the table is not served, and no call takes a field that is not in its
row; what users read of a call (ListActions, docs/wire.md, the API's description) comes from here.
See: routes.py for HTTP; docs/adr/0032-one-table-of-calls.md; docs/guides/security.md, "Roles".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from dejaqueue import limits
from dejaqueue.access.rules import (
    ADMIN,
    ANY,
    BROKER,
    CONSUME,
    LOOKS,
    MANAGE,
    PRODUCE,
    Rule,
    cron_topic,
    decided_topics,
    epoch_topics,
    letters_go_to,
    redriven_to,
)
from dejaqueue.wire.descriptors import check_fields
from dejaqueue.wire.selection import SEEK_FIELDS, SELECTION_FIELDS


@dataclass(frozen=True, slots=True)
class Call:
    """One row of the table.

    Attributes:
        name: of the action, or of the `op` of a ticket; its function has it, too.
        fields: what its body may hold, in the order in which users read them.
        rule: who may make it.
        sentence: what it does.
        required: fields that must be there.
        more: what else the body holds, where that is checked by the function; "" = nothing.
        content: bytes follow the JSON, behind a line feed; the function has them as `content`.
        at_standby: a standby answers it, too (docs/guides/standby.md).
        repeats: made twice it does what it does once (docs/guides/workers.md).
    """

    name: str
    fields: tuple[str, ...]
    rule: Rule
    sentence: str
    required: tuple[str, ...] = ()
    more: str = ""
    content: bool = False
    at_standby: bool = False
    repeats: bool = False

    def check(self, body: dict[str, Any]) -> None:
        """Raise BadRequest for a field that the call does not have, or one that is missing."""
        if not self.more:
            content = ("content",) if self.content else ()
            known = [*self.fields, *content]
            check_fields(body, known, required=(*self.required, *content))

    @property
    def body(self) -> str:
        """What the body holds, as a line for people."""
        return ", ".join((*self.fields, *((self.more,) if self.more else ()))) or "nothing"


_CHANGES = Rule((MANAGE,), audited=True)
_CHANGES_BY_NAME = Rule((MANAGE,), "name", audited=True, also=letters_go_to)
_CHANGES_ROWS = Rule((MANAGE,), audited=True, own=True)
_LOOKS = Rule(LOOKS)
_LOOKS_AT_ROWS = Rule(LOOKS, own=True)
_READS = Rule((MANAGE,))
"""Shows payloads, or what they will be."""
_CLAIMS = Rule((CONSUME,))
_KEYS = Rule((ADMIN,), field=BROKER, audited=True)
_SERVERS = Rule((ADMIN,), field=BROKER, audited=True)
_DECIDES = Rule(also=decided_topics)
_SETTINGS = "the settings of a topic"
_AT_STANDBY: Final = {
    *("describe_topic", "list_topics", "stats", "assignments", "counts", "histogram", "due"),
    *("clock", "lane", "scan_ranges", "history_files", "message_history", "ask_history"),
    *("cron_list", "cron_get", "cron_next", "transactions", "cluster", "node_progress"),
    *("backup_progress", "standby", "promote", "list_keys", "peek", "scan", "history"),
}
"""Calls that read what is there, and the one that ends a standby."""
_REPEATS: Final = {
    *("describe_topic", "list_topics", "stats", "assignments", "counts", "histogram", "due"),
    *("clock", "lane", "erase", "scan_ranges", "history_files", "message_history"),
    *("note_write", "writes", "cron_put", "cron_pause", "cron_list", "cron_get", "cron_next"),
    *("begin_transaction", "commit_transaction", "abort_transaction", "commit_epoch"),
    *("transactions", "cluster", "node_progress", "backup_progress", "standby", "list_keys"),
    *("peek", "history", "payload"),
}
"""Calls that change nothing, or leave as it is what is so already, whatever their body says."""
_MOVES = ("due", "by_ms", "window_from", "window_to", "set_priority", "set_group")
"""What a move changes."""


def _table(rows: Iterable[Call]) -> dict[str, Call]:
    return {
        call.name: replace(call, at_standby=call.name in _AT_STANDBY, repeats=call.name in _REPEATS)
        for call in rows
    }


ACTIONS = _table([
    # --- topics
    Call(
        "create_topic",
        ("name", "exist_ok"),
        _CHANGES_BY_NAME,
        "Make a topic; with `exist_ok`, one of the same settings may be there already.",
        more=_SETTINGS,
    ),
    Call(
        "alter_topic",
        ("name",),
        _CHANGES_BY_NAME,
        "Change settings of a topic; they hold at once.",
        more="the settings that change",
    ),
    Call(
        "delete_topic",
        ("name",),
        Rule((MANAGE,), "name", audited=True),
        "Delete a topic and all its messages.",
    ),
    Call("describe_topic", ("name",), Rule(ANY, "name"), "Show the settings of a topic."),
    Call(
        "list_topics",
        (),
        Rule(ANY, "name", optional=True),
        "Show the settings of every topic that the caller may see.",
    ),
    # --- looking
    Call("stats", ("topic",), Rule(LOOKS, optional=True), "Count one topic, or all of them."),
    Call(
        "assignments",
        ("name",),
        Rule(LOOKS, "name"),
        "Show which consumer has which partition of an exclusive topic.",
    ),
    Call(
        "counts",
        ("topic", "by", "limit", "after"),
        _LOOKS_AT_ROWS,
        "Count the messages of a topic by state, group or tag.",
    ),
    Call(
        "histogram",
        ("topic", "bucket_ms", "exact", *SELECTION_FIELDS),
        _LOOKS_AT_ROWS,
        "Count the selected messages that are due in each stretch of time.",
        required=("due_from", "due_to", "bucket_ms"),
    ),
    Call(
        "due",
        ("topic", "within_ms"),
        Rule(LOOKS),
        "Count the messages of a topic that are ready or fall due within a time.",
    ),
    Call("clock", (), Rule(), "Tell the broker's time."),
    Call("lane", (), Rule(), "Tell `port` and `name` of the lane for single messages, or null."),
    # --- changing
    Call(
        "move_where",
        ("topic", "after", "dry_run", *SELECTION_FIELDS, *_MOVES),
        _CHANGES_ROWS,
        "Move the selected messages, a page in each call.",
    ),
    Call(
        "cancel_where",
        ("topic", "after", "dry_run", *SELECTION_FIELDS),
        _CHANGES_ROWS,
        "Cancel the selected messages, a page in each call.",
    ),
    Call(
        "erase",
        ("topic", "keys", "ids", "origin", "after", *SEEK_FIELDS),
        _CHANGES,
        "End the messages with these keys or ids, or selected, and have every byte of them "
        "deleted, a piece in each call.",
    ),
    Call(
        "seek",
        ("topic", "to", "after", *SEEK_FIELDS),
        _CHANGES,
        "Have a subscription get messages again, or pass over them, a page in each call.",
        required=("to",),
    ),
    Call(
        "redrive",
        ("topic", "to", "drop", "reason", "group", "ids", "limit", "after"),
        Rule((MANAGE,), audited=True, also=redriven_to),
        "Send a page of dead letters back to their topics, or to another one, or drop them.",
    ),
    # --- reading without a consumer
    Call(
        "scan_ranges",
        ("name",),
        Rule((MANAGE,), "name"),
        "Show where the messages of each partition lie, to plan scans.",
    ),
    Call(
        "history_files",
        ("name", "at_from", "at_to", "here"),
        Rule((MANAGE,), "name"),
        "List the files of history of a topic, and what is in each.",
    ),
    Call(
        "message_history",
        ("topic", "id", "after"),
        _LOOKS,
        "Show what happened to a message, and when, as history recorded it.",
        required=("id",),
    ),
    Call(
        "claim",
        ("topic", "partition", "rows", "bytes", "lease_ms"),
        _CLAIMS,
        "Lease messages that are due, to read them by the number of the claim.",
        required=("partition", "rows"),
    ),
    Call(
        "extend_claims",
        ("topic", "claims", "lease_ms"),
        _CLAIMS,
        "Extend whole claims, given as lists of numbers by partition.",
    ),
    Call(
        "ack_claims",
        ("topic", "claims"),
        _CLAIMS,
        "Ack whole claims, given as lists of numbers by partition.",
    ),
    Call(
        "note_write",
        ("topic", "label", "epoch", "committed", "counts"),
        Rule((PRODUCE,)),
        "Keep the outcome of a write, for callers of `writes`.",
        required=("topic", "label", "counts"),
    ),
    Call(
        "writes",
        ("topic", "label"),
        Rule((PRODUCE, MANAGE), own=True, whole=(MANAGE,)),
        "Show the noted outcomes of the last writes into a topic.",
    ),
    # --- payloads that are streamed
    Call(
        "begin_payload",
        ("topic", "once"),
        Rule((PRODUCE,)),
        "Begin to upload a payload of a message to come, `once`: of one alone; answers `upload`, "
        "`part_bytes`, and whether parts may go `direct`ly (`sign_upload`).",
    ),
    Call(
        "put_payload_part",
        ("topic", "upload", "index", "digest"),
        Rule((PRODUCE,)),
        "Store a part of it, durably. The body is a line of JSON, and behind it the bytes.",
        required=("upload", "index", "digest"),
        content=True,
    ),
    Call(
        "end_payload",
        ("topic", "upload", "bytes", "digests"),
        Rule((PRODUCE,)),
        "End it, when all parts are stored; answers a `voucher`, to send as the payload.",
        required=("upload", "bytes", "digests"),
    ),
    Call(
        "sign_upload",
        ("topic", "bytes", "upload", "first", "end"),
        Rule((PRODUCE,)),
        "Begin one of so many `bytes` whose parts go to the object store by signed URLs, past the "
        "broker; or, of an `upload` that has begun, have these parts go there.",
    ),
    Call(
        "sign_payload",
        ("topic", "voucher", "first", "end"),
        Rule((CONSUME, MANAGE)),
        "Tell signed URLs by which a streamed payload, or these parts of it, are read from the "
        "object store.",
        required=("voucher",),
    ),
    # --- cron
    Call(
        "cron_put",
        ("topic", "entries"),
        _CHANGES,
        "Make or change entries of a cron topic.",
    ),
    Call("cron_list", ("topic", "after", "limit"), _READS, "Show entries by name, page by page."),
    Call("cron_get", ("topic", "name"), _READS, "Show one entry."),
    Call(
        "cron_pause",
        ("topic", "names", "paused"),
        _CHANGES,
        "Pause entries, or resume them with `paused: false`.",
    ),
    Call(
        "cron_drop",
        ("topic", "names"),
        _CHANGES,
        "Delete entries; messages that are due stay.",
    ),
    Call("cron_run", ("topic", "name"), _CHANGES, "Fire an entry now, beside its schedule."),
    Call(
        "cron_next",
        ("topic", "name", "entry", "after_ms", "count"),
        Rule(also=cron_topic),
        "Show when an entry fires next: one that is there, by name, or the one in the call.",
    ),
    # --- transactions
    Call(
        "begin_transaction",
        ("topic", "timeout_ms", "branched", "query", "epoch"),
        Rule((PRODUCE, CONSUME)),
        "Begin a transaction, whose decision is kept in this topic.",
    ),
    Call(
        "commit_transaction",
        ("transaction", "participants", "branches"),
        _DECIDES,
        "Commit a transaction in its participants, each given as `topic/partition`.",
    ),
    Call(
        "commit_epoch",
        ("topic", "query", "epoch", "participants", "branches", "until_ms"),
        Rule(also=epoch_topics),
        "Commit the branches of an epoch of a query, unless one was committed for it before.",
    ),
    Call(
        "abort_transaction",
        ("transaction", "participants", "branches"),
        _DECIDES,
        "Abort a transaction in its participants.",
    ),
    Call(
        "transactions",
        ("topic",),
        _LOOKS,
        "List undecided transactions that have something staged in a topic.",
    ),
    Call(
        "tell_transaction",
        ("transaction", "place", "commit", "record"),
        Rule(peers=True),
        "Tell the owner of a participant what was decided.",
    ),
    Call(
        "ask_transaction",
        ("transaction",),
        Rule(peers=True),
        "Ask the owner of a transaction's home what was decided.",
    ),
    Call(
        "ask_home",
        ("topic", "about", "given"),
        Rule(peers=True),
        "Ask the owner of a topic's first shard for what its shards agree on.",
    ),
    Call(
        "ask_shard",
        ("topic", "count", "byte_count"),
        Rule(peers=True),
        "Have the owner of a shard keep less of the topic's backlog, for other shards.",
    ),
    Call(
        "ask_keys",
        ("topic", "keys"),
        Rule(peers=True),
        "Ask the owner of a topic which of these keys a live message of it has.",
        required=("topic", "keys"),
    ),
    Call(
        "bring_letters",
        ("topic", "producer", "number"),
        Rule(peers=True),
        "Have the owner of a topic take dead letters that come back. The body is a line of JSON, "
        "and behind it the rows, as an Arrow stream.",
        required=("topic", "producer", "number"),
        content=True,
    ),
    Call(
        "ask_history",
        ("topic", "id", "after"),
        Rule(peers=True),
        "Ask another broker what it recorded of a message.",
        required=("id",),
    ),
    Call(
        "ask_erasure",
        ("topic", "partition", "step"),
        Rule(peers=True),
        "Have another broker erase messages from what it recorded, and its copy of a journal.",
        required=("partition", "step"),
        content=True,
    ),
    # --- the cluster
    Call(
        "cluster",
        ("topic", "servers"),
        Rule(ANY, "topic", optional=True),
        "Show which brokers there are and which topics each serves; with `servers: true`, also "
        "the servers that keep the journals.",
    ),
    Call("remove_node", ("node",), _SERVERS, "Begin to take a node out of an embedded cluster."),
    Call(
        "repair_node",
        ("node",),
        _SERVERS,
        "Begin to rebuild the copies on a node's server.",
    ),
    Call(
        "node_progress",
        ("node", "change"),
        Rule((ADMIN,), field=BROKER),
        "Show how far a change of a node is; `change` is `remove_node` or `repair_node`.",
    ),
    Call(
        "check_cluster",
        (),
        _SERVERS,
        "List topics that the catalogue or the journals lack.",
    ),
    # --- backups
    Call(
        "backup",
        ("url", "full"),
        _SERVERS,
        "Begin a backup of all topics to a directory of the broker's machine, or an object store.",
    ),
    Call(
        "backup_progress",
        (),
        Rule((ADMIN,), field=BROKER),
        "Show how far the backup is that was begun last, or how it ended.",
    ),
    Call(
        "ask_backup",
        ("backup", "step", "url", "store", "parent", "full", "logs", "chain"),
        Rule(peers=True),
        "Have another broker do a step of its part of a backup of the cluster.",
        required=("backup", "step"),
    ),
    Call(
        "ask_turn",
        ("step", "turn", "chain", "missing"),
        Rule(peers=True),
        "Have another broker do a step of a turn of the archive of the cluster.",
        required=("step",),
    ),
    Call(
        "read_ahead",
        ("topic",),
        Rule(peers=True),
        "Have the next owner of a topic, or of a shard of one, read it while it is served here.",
        required=("topic",),
    ),
    # --- a standby
    Call(
        "standby",
        (),
        Rule((ADMIN,), field=BROKER),
        "Show whether this broker is the active one of two, or a standby, and how far that is.",
    ),
    Call(
        "promote",
        (),
        _SERVERS,
        "Have a standby take the place of the broker that it follows, which is refused from then "
        "on.",
    ),
    # --- API keys
    Call(
        "create_key",
        ("name", "grants", "ends_ms", "start_token"),
        _KEYS,
        "Make an API key; the answer is the only place where its text is shown.",
        required=("name", "grants"),
    ),
    Call(
        "list_keys",
        (),
        Rule((ADMIN,), field=BROKER),
        "List every API key that was not revoked, without secrets.",
    ),
    Call(
        "read_keys",
        (),
        Rule(peers=True),
        "Have a broker read the API keys of the cluster, which another broker has changed.",
    ),
    Call(
        "revoke_key",
        ("key", "force"),
        _KEYS,
        "Refuse an API key from now on, by its id or name; the last admin key needs `force`.",
        required=("key",),
    ),
])  # fmt: skip
"""Calls with a JSON body and a JSON answer: Flight's actions, by name."""

TICKETS = _table([
    Call(
        "peek",
        ("topic", "limit", "after", "ids", "keys", "partition", *SELECTION_FIELDS),
        _LOOKS_AT_ROWS,
        "Read a page of messages as they are.",
    ),
    Call(
        "scan",
        ("topic", "partition", "first", "end", "columns", "ids", "keys", *SELECTION_FIELDS),
        _READS,
        "Read all messages of a stretch of a partition.",
        required=("partition",),
    ),
    Call(
        "history",
        ("topic", "partition", "file", "columns", "at_from", "at_to", "here", "positions", "gaps"),
        _READS,
        "Read a file of history.",
        required=("partition", "file"),
    ),
    Call(
        "claim",
        ("topic", "partition", "claim", "first", "end", "columns"),
        _CLAIMS,
        "Read the messages of a claim.",
        required=("partition", "claim"),
    ),
    Call(
        "payload",
        ("topic", "voucher", "first", "end"),
        Rule((CONSUME, MANAGE)),
        "Read parts of a streamed payload, by the voucher in its message.",
        required=("voucher",),
    ),
])  # fmt: skip
"""Calls that are answered with batches: the operations of DoGet, by `op`."""


def bytes_past(name: str, body: dict[str, Any]) -> int:
    """Bytes that a call lets its caller send past the broker, which count as sent; 0 = none.

    What is no number is refused by the call itself.
    """
    if name != "sign_upload":
        return 0
    first, end, byte_count = (body.get(field, 0) for field in ("first", "end", "bytes"))
    if "upload" in body and type(first) is int and type(end) is int:
        byte_count = (end - first) * limits.PART_BYTES
    return max(0, byte_count) if type(byte_count) is int else 0
