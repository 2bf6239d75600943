"""The table of the HTTP API's routes: under which name, for whom, what each does.

Room: access. Pure values. A route that is a call takes rule and sentence from the call's row
(calls.py); the others (streams of the wire, probes, DOQ's paths) have their own.
Holds: a route that is not in the table is not served; a name stands for one route, because it is
the route's operation id in the OpenAPI document.
See: http/openapi.py, which registers functions by these rows; docs/adr/0032-one-table-of-calls.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dejaqueue.access.calls import ACTIONS, TICKETS
from dejaqueue.access.roles import Role
from dejaqueue.access.rules import (
    BROKER,
    CONSUME,
    LOOKS,
    MANAGE,
    PRODUCE,
    PUBLIC,
    Rule,
    named_or_selected,
)


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table.

    Attributes:
        method, path: the address; each `{name}` in the path is a parameter.
        name: the operation id.
        rule: who may make the request.
        sentence: what it does.
        repeats: its call may be made twice, whatever its body says.
    """

    method: str
    path: str
    name: str
    rule: Rule
    sentence: str
    repeats: bool = False


_BROKER_LOOKS = Rule(LOOKS, field=BROKER)
_NAMED = Rule(also=named_or_selected, own=True)
_TOPIC = "/v1/topics/{topic}"
_SUBSCRIPTIONS = f"{_TOPIC}/subscriptions"
_SUBSCRIPTION = f"{_SUBSCRIPTIONS}/{{subscription}}"
_DOQ = "/API/v1/queues/{queue_name}"
_DOQ_MESSAGE = f"{_DOQ}/messages/{{id}}"


def _call(method: str, path: str, name: str, *, sentence: str = "", called: str = "") -> Route:
    """A route that is a call; `called` is the call's name, if the route has another one."""
    call = (ACTIONS | TICKETS)[called or name]
    named = "topic" if "{topic}" in path else call.rule.field
    rule, told = replace(call.rule, field=named), sentence or call.sentence
    return Route(method, path, name, rule, told, call.repeats)


def _doq(method: str, path: str, name: str, roles: tuple[Role, ...], sentence: str) -> Route:
    audited = path == _DOQ and method != "GET"
    rule = Rule(roles, field="queue_name", audited=audited)
    return Route(method, path, f"doq_{name}", rule, sentence)


_ROWS = (
    # --- probes and numbers of the whole broker
    Route("GET", "/livez", "livez", PUBLIC, "Say whether the process answers at all."),
    Route("GET", "/readyz", "readyz", PUBLIC, "Say whether the broker should get work."),
    Route("GET", "/healthz", "healthz", PUBLIC, "Say whether the process answers at all."),
    Route("GET", "/openapi.json", "openapi", PUBLIC, "Show the OpenAPI document."),
    Route("GET", "/docs", "docs", PUBLIC, "Show the API as a page."),
    Route("GET", "/stats", "broker_stats", _BROKER_LOOKS, "Show what `dejaq stats --json` prints."),
    Route("GET", "/metrics", "metrics", _BROKER_LOOKS, "Show the metrics, for Prometheus."),
    Route(
        "GET", "/v1/stats", "stats", _BROKER_LOOKS,
        "Count the broker and every topic, also those that other brokers serve.",
    ),
    # --- the cluster
    _call("GET", "/v1/cluster", "cluster"),
    _call("POST", "/v1/cluster/nodes/{node}/remove", "remove_node"),
    _call("POST", "/v1/cluster/nodes/{node}/repair", "repair_node"),
    _call("GET", "/v1/cluster/nodes/{node}/progress", "node_progress"),
    # --- backups
    _call("POST", "/v1/backups", "backup"),
    _call("GET", "/v1/backups/progress", "backup_progress"),
    # --- a standby
    _call("GET", "/v1/standby", "standby"),
    _call("POST", "/v1/standby/promotion", "promote"),
    # --- who did what
    Route(
        "GET", "/v1/audit", "audit_lines", Rule((Role.ADMIN,), field=BROKER),
        "Show the newest lines of this broker's audit log since it started.",
    ),
    # --- what will hurt
    Route(
        "GET", "/v1/findings", "show_findings", Rule((Role.ADMIN,), field=BROKER),
        "Show what of this broker's machine and settings will hurt one day.",
    ),
    # --- API keys
    _call("GET", "/v1/keys", "list_keys"),
    _call("POST", "/v1/keys", "create_key"),
    _call("DELETE", "/v1/keys/{key}", "revoke_key"),
    # --- topics
    _call("GET", "/v1/topics", "list_topics"),
    _call("POST", "/v1/topics", "create_topic"),
    _call("GET", _TOPIC, "describe_topic"),
    _call("PATCH", _TOPIC, "alter_topic"),
    _call("DELETE", _TOPIC, "delete_topic"),
    Route(
        "POST", f"{_TOPIC}/pause", "pause_topic", Rule((MANAGE,), audited=True),
        "Stop delivering messages of a topic; producers go on.",
    ),
    Route(
        "POST", f"{_TOPIC}/resume", "resume_topic", Rule((MANAGE,), audited=True),
        "Deliver messages of a topic again.",
    ),
    Route(
        "POST", f"{_TOPIC}/purge", "purge_topic", Rule((MANAGE,), audited=True),
        "Cancel every message of a topic that is not leased.",
    ),
    _call("POST", f"{_TOPIC}/erase", "erase"),
    # --- subscriptions
    _call("GET", _SUBSCRIPTIONS, "list_subscriptions", called="describe_topic",
          sentence="Show the subscriptions of a topic."),
    _call("GET", _SUBSCRIPTION, "show_subscription", called="describe_topic",
          sentence="Show the settings that a subscription has of its own."),
    _call("PUT", _SUBSCRIPTION, "put_subscription", called="alter_topic",
          sentence="Make a subscription, or change settings of one; they hold at once."),
    _call("DELETE", _SUBSCRIPTION, "delete_subscription", called="alter_topic",
          sentence="End a subscription, with what only it still had."),
    _call("POST", f"{_TOPIC}/seek", "seek",
          sentence="Have a subscription get messages again, or pass over them."),
    # --- looking
    _call("GET", f"{_TOPIC}/assignments", "assignments"),
    Route("GET", f"{_TOPIC}/consumers", "consumers", Rule(LOOKS), "Show who consumes a topic now."),
    _call("GET", f"{_TOPIC}/counts", "counts"),
    _call("GET", f"{_TOPIC}/due", "due"),
    _call("GET", f"{_TOPIC}/histogram", "histogram"),
    _call("GET", f"{_TOPIC}/stats", "topic_stats", called="stats",
          sentence="Count a topic and each of its partitions."),
    _call("GET", f"{_TOPIC}/messages", "peek"),
    _call(
        "GET", f"{_TOPIC}/messages/{{id}}", "get_message", called="peek",
        sentence="Read one live message as it is, without leasing it.",
    ),
    _call("GET", f"{_TOPIC}/messages/{{id}}/history", "message_history"),
    # --- changing
    Route(
        "POST", f"{_TOPIC}/move", "move", _NAMED,
        "Give messages another due time, priority or group, by id, by key or by filter.",
    ),
    Route(
        "POST", f"{_TOPIC}/cancel", "cancel", _NAMED,
        "Cancel messages, by id, by key or by filter.",
    ),
    # --- dead letters
    Route(
        "GET", f"{_TOPIC}/dead-letters", "dead_letters", Rule(LOOKS),
        "Read a page of dead letters as they are.",
    ),
    Route(
        "POST", f"{_TOPIC}/dead-letters/purge", "purge_dead_letters", Rule((MANAGE,), audited=True),
        "Throw dead letters away, for good.",
    ),
    _call("POST", f"{_TOPIC}/dead-letters/redrive", "redrive"),
    # --- cron
    Route(
        "POST", "/v1/cron/preview", "cron_preview", Rule(),
        "Show when an entry would fire; it need not be there.",
    ),
    _call("GET", f"{_TOPIC}/cron", "cron_list"),
    _call("POST", f"{_TOPIC}/cron", "cron_put"),
    _call("GET", f"{_TOPIC}/cron/{{name}}", "cron_get"),
    _call(
        "PUT", f"{_TOPIC}/cron/{{name}}", "cron_put_one", called="cron_put",
        sentence="Make or change one entry.",
    ),
    _call(
        "DELETE", f"{_TOPIC}/cron/{{name}}", "cron_drop",
        sentence="Delete an entry; messages that are due stay.",
    ),
    Route(
        "GET", f"{_TOPIC}/cron/{{name}}/firings", "cron_next", Rule((MANAGE,)),
        "Show when an entry fires next, jitter included.",
    ),
    _call(
        "POST", f"{_TOPIC}/cron/{{name}}/pause", "cron_pause",
        sentence="Pause an entry; what passes meanwhile is not missed.",
    ),
    _call(
        "POST", f"{_TOPIC}/cron/{{name}}/resume", "cron_resume", called="cron_pause",
        sentence="Resume an entry; it fires from now on.",
    ),
    _call("POST", f"{_TOPIC}/cron/{{name}}/run", "cron_run"),
    # --- transactions
    _call("POST", "/v1/transactions", "begin_transaction"),
    _call("POST", "/v1/transactions/commit", "commit_transaction"),
    _call("POST", "/v1/transactions/abort", "abort_transaction"),
    _call("GET", f"{_TOPIC}/transactions", "transactions"),
    # --- messages
    Route(
        "POST", f"{_TOPIC}/messages", "send", Rule((PRODUCE,)),
        "Send messages; the answer comes when they are durable.",
    ),
    Route(
        "PUT", f"{_TOPIC}/payload", "upload_payload", Rule((PRODUCE,)),
        "Stream a payload, to send it in a message.",
    ),
    Route(
        "GET", f"{_TOPIC}/payload", "read_payload", Rule((CONSUME, MANAGE)),
        "Read a payload that is streamed.",
    ),
    _call("POST", f"{_TOPIC}/payload/uploads", "sign_upload"),
    _call("POST", f"{_TOPIC}/payload/end", "end_payload"),
    _call("POST", f"{_TOPIC}/payload/urls", "sign_payload"),
    Route(
        "POST", f"{_TOPIC}/lease", "lease", Rule((CONSUME,)),
        "Take messages that are due, or wait for some.",
    ),
    Route(
        "GET", f"{_TOPIC}/events", "events", Rule((CONSUME,), audited=True, takes=True),
        "Take messages as server-sent events, as they become due.",
    ),
    Route("POST", f"{_TOPIC}/ack", "ack", Rule((CONSUME,)), "Ack messages: they are done."),
    Route(
        "POST", f"{_TOPIC}/nack", "nack", Rule((CONSUME,)),
        "Give messages back: they are delivered again, or die.",
    ),
    Route(
        "POST", f"{_TOPIC}/extend", "extend", Rule((CONSUME,)),
        "Extend the leases of messages, counted from now.",
    ),
    # --- DOQ
    Route(
        "GET", "/API/v1/queues", "doq_list_queues", Rule(LOOKS, "queue_name", optional=True),
        "List all queues that the caller may look at.",
    ),
    Route(
        "POST", "/API/v1/queues", "doq_create_queue", Rule((MANAGE,), "name", audited=True),
        "Make a queue; one of that name and type may be there already.",
    ),
    _doq("GET", _DOQ, "get_queue", LOOKS, "Show a queue, and how full it is."),
    _doq("PUT", _DOQ, "update_queue", (MANAGE,), "Change the settings of a queue."),
    _doq("DELETE", _DOQ, "delete_queue", (MANAGE,), "Delete a queue and its messages."),
    Route(
        "POST", "/API/v1/ids", "doq_generate_ids", Rule(),
        "Make ids for messages; a message that is sent twice under one id is there once.",
    ),
    Route(
        "GET", "/API/v1/cluster/servers", "doq_cluster_servers", Rule((MANAGE,), field=BROKER),
        "List the brokers; each is shown as its own leader, because each takes every call.",
    ),
    _doq(
        "POST", f"{_DOQ}/messages", "enqueue", (PRODUCE,),
        "Put a message into a queue; the answer comes when it is durable.",
    ),
    Route(
        "GET", f"{_DOQ}/messages", "doq_dequeue",
        Rule((CONSUME,), "queue_name", audited=True, takes=True),
        "Take the first message that is due; with `ack=true` it is done at once.",
    ),
    _doq("GET", _DOQ_MESSAGE, "get_message", (MANAGE,), "Read a message without taking it."),
    _doq(
        "DELETE", _DOQ_MESSAGE, "delete_message", (PRODUCE,),
        "Delete a message, whether it waits or is with a consumer.",
    ),
    _doq("POST", f"{_DOQ_MESSAGE}/ack", "ack", (CONSUME,), "Ack a message: it is done."),
    _doq(
        "POST", f"{_DOQ_MESSAGE}/nack", "nack", (CONSUME,),
        "Give a message back to its place, or to that of another priority.",
    ),
    _doq(
        "POST", f"{_DOQ_MESSAGE}/touch", "touch", (CONSUME,),
        "Begin the acknowledgement timeout of a message anew.",
    ),
    _doq(
        "PUT", f"{_DOQ_MESSAGE}/priority", "set_priority", (PRODUCE,),
        "Give a waiting message another priority, and so another place or time.",
    ),
)  # fmt: skip

ROUTES: dict[str, Route] = {route.name: route for route in _ROWS}
"""Every route, by name."""
assert len(ROUTES) == len(_ROWS), "two routes have one name"
RULES: dict[tuple[str, str], Rule] = {(route.method, route.path): route.rule for route in _ROWS}
"""The rule of each route, by method and path."""
REPEATED: frozenset[tuple[str, str]] = frozenset(
    (route.method, route.path)
    for route in _ROWS
    if route.repeats or (route.method == "GET" and not route.rule.takes)
)
"""Routes that may be requested twice, by method and path: they change nothing, or what they make so
stays so."""
