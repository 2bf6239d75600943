"""The function of each call: `_counts` answers the call `counts` of the table in access/calls.py.

Room: broker. Any thread may call; what is asked of a partition runs on its worker.
Holds: every row of the table has its function here, or this module cannot be imported; a body was
checked against its row before a function gets it.
See: Broker.call, Broker.ask and Broker.read, which are all that other rooms use;
docs/adr/0032-one-table-of-calls.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeAlias

import pyarrow as pa

from dejaqueue.access import administration
from dejaqueue.access.calls import ACTIONS, TICKETS, Call
from dejaqueue.access.senders import Requester
from dejaqueue.broker.calls import (
    api_keys,
    browse,
    by_filter,
    claims,
    cron,
    erasure,
    history,
    message_history,
    payload_parts,
    recorded_erasure,
    redrive,
    reports,
    scan,
    seek,
)
from dejaqueue.broker.calls.due import due_soon
from dejaqueue.broker.calls.peek import peek
from dejaqueue.broker.calls.port import BrokerPort
from dejaqueue.broker.calls.stats import topic_stats
from dejaqueue.broker.letters import far_letters
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.broker.topic.served_view import ServedView
from dejaqueue.errors import BadRequest
from dejaqueue.model import Topic
from dejaqueue.topic_names import parse_subscription

Body: TypeAlias = dict[str, Any]
Answer: TypeAlias = dict[str, Any]
Rows: TypeAlias = tuple[pa.Schema, Iterator[pa.RecordBatch]]
"""The schema of batches, and the batches."""


def answer(broker: BrokerPort, name: str, body: Body, by: Requester) -> Answer | Future[Answer]:
    """Do a call of ACTIONS. A future comes from a call that waits for several partitions.

    Raises:
        BadRequest: there is no such call, or a field is wrong. Others as the call says.
    """
    call = ACTIONS.get(name)
    if call is None:
        raise BadRequest("action", f"one of {', '.join(ACTIONS)}", name)
    call.check(body)
    _check_site(broker, call)
    return _FUNCTIONS[name](broker, dict(body), by)


def rows(broker: BrokerPort, op: str, ticket: Body, by: Requester) -> Rows:
    """Do a call of TICKETS. Raises BadRequest, TopicUnknown, Elsewhere, Refused."""
    call = TICKETS.get(op)
    if call is None:
        raise BadRequest("ticket.op", " or ".join(TICKETS), op)
    call.check(ticket)
    _check_site(broker, call)
    return _READERS[op](broker, dict(ticket), by)


def _check_site(broker: BrokerPort, call: Call) -> None:
    """Raise NotActive if it is for the other one of two sites."""
    if call.at_standby:
        broker.site.check_reads()
    else:
        broker.site.check_changes()


# --- topics ---------------------------------------------------------------------------------------


def _create_topic(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    exist_ok = bool(body.pop("exist_ok", False))
    return broker.create_topic(Topic.from_dict(body), exist_ok=exist_ok).to_dict()


def _alter_topic(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    name = _name(body)
    return broker.alter_topic(name, {key: body[key] for key in body if key != "name"}).to_dict()


def _delete_topic(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    broker.delete_topic(_name(body))
    return {}


def _describe_topic(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return broker.topic(_name(body), newest=True).to_dict()


def _list_topics(broker: BrokerPort, _body: Body, _by: Requester) -> Answer:
    return {"topics": [topic.to_dict() for topic in broker.topics()]}


# --- looking --------------------------------------------------------------------------------------


def _stats(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    topic, now_ms = body.get("topic"), broker.clock.utc_ms()
    if topic is not None:
        return topic_stats(_view(broker, body), now_ms)
    broker.check_running()
    return {
        "uptime_ms": (broker.clock.now_us() - broker.started_us) // 1_000,
        "refused_lately": broker.quotas.lately(),
        "topics": {
            name: topic_stats(broker.runtime(name), now_ms) for name in sorted(broker.serving())
        },
    }


def _assignments(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return broker.view(_name(body)).assignments()


def _counts(broker: BrokerPort, body: Body, by: Requester) -> Answer:
    return browse.counts(_view(broker, body), body, broker.clock.utc_ms(), by.sender.owner)


def _due(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return due_soon(_view(broker, body), body)


def _histogram(broker: BrokerPort, body: Body, by: Requester) -> Answer:
    return browse.histogram(_view(broker, body), body, broker.clock.utc_ms(), by.sender.owner)


def _clock(broker: BrokerPort, _body: Body, _by: Requester) -> Answer:
    return {"broker_us": broker.clock.utc_us()}


def _lane(broker: BrokerPort, _body: Body, _by: Requester) -> Answer:
    place = broker.lane
    if place is None:
        return {"port": None}
    return {"port": place.port, "name": place.name, "fields": place.has_fields}


# --- changing -------------------------------------------------------------------------------------


def _move_where(broker: BrokerPort, body: Body, by: Requester) -> Answer:
    return by_filter.move_where(_topic(broker, body), body, broker.clock.utc_ms(), by.sender.owner)


def _cancel_where(broker: BrokerPort, body: Body, by: Requester) -> Answer:
    topic, now_ms = _topic(broker, body), broker.clock.utc_ms()
    return by_filter.cancel_where(topic, body, now_ms, by.sender.owner)


def _erase(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return erasure.erase(broker, _topic(broker, body), body)


def _seek(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return seek.seek(_view(broker, body), body)


def _redrive(broker: BrokerPort, body: Body, by: Requester) -> Answer:
    return redrive.redrive(broker, body, by.may_receive)


# --- reading without a consumer -------------------------------------------------------------------


def _scan_ranges(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return scan.ranges(broker.view(_name(body)))


def _history_files(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    topic = _recorded(broker, _name(body), body)
    return history.list_files(broker.history, topic, body)


def _recorded(broker: BrokerPort, name: str, values: Body) -> ServedTopic | None:
    """A topic whose history is asked for.

    Returns:
        None: it is served elsewhere, and what this broker recorded of it is wanted.
    """
    if not history.wants_here(values):
        return broker.runtime(name)
    broker.topic(name)
    return broker.runtime(name) if broker.serves(name) else None


def _message_history(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    asked = message_history.parse(browse.topic_name(body), body)
    return message_history.message_history(broker, asked)


def _ask_history(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    asked = message_history.parse(browse.topic_name(body), body)
    broker.topic(asked.topic)
    return message_history.recorded(broker.history, asked, broker.clock)


def _ask_erasure(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return recorded_erasure.hear(broker, body, erasure.parse_choice)


def _claim(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return claims.claim(_view(broker, body), body)


def _extend_claims(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return claims.settle(_view(broker, body), body, ack=False)


def _ack_claims(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return claims.settle(_view(broker, body), body, ack=True)


def _note_write(broker: BrokerPort, body: Body, by: Requester) -> Answer:
    return reports.note_write(_topic(broker, body), body, by.sender, broker.clock.utc_ms())


def _writes(broker: BrokerPort, body: Body, by: Requester) -> Answer:
    return reports.writes(_topic(broker, body), body, by.sender)


# --- payloads that are streamed -------------------------------------------------------------------


def _begin_payload(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return payload_parts.begin(broker, body)


def _put_payload_part(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return payload_parts.put(broker, body)


def _end_payload(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return payload_parts.end(broker, body)


def _sign_upload(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return payload_parts.sign_upload(broker, body)


def _sign_payload(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return payload_parts.sign_payload(broker, body)


# --- cron -----------------------------------------------------------------------------------------


def _cron(name: str) -> Callable[[BrokerPort, Body, Requester], Answer]:
    return lambda broker, body, by: cron.act(
        broker.runtime, broker.clock.utc_ms(), name, body, by.sender
    )


_cron_put, _cron_list, _cron_get = _cron("cron_put"), _cron("cron_list"), _cron("cron_get")
_cron_pause, _cron_drop = _cron("cron_pause"), _cron("cron_drop")
_cron_run, _cron_next = _cron("cron_run"), _cron("cron_next")


# --- transactions ---------------------------------------------------------------------------------


def _transaction(name: str) -> Callable[[BrokerPort, Body, Requester], Future[Answer]]:
    return lambda broker, body, by: broker.transactions.act(name, body, by.sender)


_begin_transaction = _transaction("begin_transaction")
_commit_transaction = _transaction("commit_transaction")
_commit_epoch = _transaction("commit_epoch")
_abort_transaction = _transaction("abort_transaction")
_transactions = _transaction("transactions")


def _tell_transaction(broker: BrokerPort, body: Body, _by: Requester) -> Future[Answer]:
    return broker.transactions.hear("tell_transaction", body)


def _ask_transaction(broker: BrokerPort, body: Body, _by: Requester) -> Future[Answer]:
    return broker.transactions.hear("ask_transaction", body)


def _ask_keys(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return {"keys": redrive.live_keys(broker, body)}


def _bring_letters(broker: BrokerPort, body: Body, _by: Requester) -> Future[Answer]:
    return far_letters.take(broker.open_write, body)


def _ask_home(broker: BrokerPort, body: Body, _by: Requester) -> Future[Answer]:
    return broker.homes.hear(body)


def _ask_shard(broker: BrokerPort, body: Body, _by: Requester) -> Future[Answer]:
    return broker.homes.hear_home(body)


# --- the cluster ----------------------------------------------------------------------------------


def _cluster(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    topic = body.get("topic") or ""
    if not isinstance(topic, str):
        raise BadRequest("topic", "the name of a topic", topic)
    return broker.cluster(topic, servers=body.get("servers") is True)


def _remove_node(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return broker.act_on_servers("remove_node", {"node": body.get("node"), "start": True})


def _repair_node(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return broker.act_on_servers("repair_node", {"node": body.get("node"), "start": True})


def _node_progress(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    change = body.get("change")
    if change not in {"remove_node", "repair_node"}:
        raise BadRequest("change", "remove_node or repair_node", change)
    return broker.act_on_servers(change, {"node": body.get("node")})


def _check_cluster(broker: BrokerPort, _body: Body, _by: Requester) -> Answer:
    return broker.act_on_servers("check_cluster", {})


# --- backups --------------------------------------------------------------------------------------


def _backup(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    url = body.get("url")
    if not isinstance(url, str) or not url:
        raise BadRequest("url", "where backups are kept", url)
    if "://" not in url and ":" not in url and not url.startswith("/"):
        raise BadRequest("url", "a path from the root of the broker's machine, or a URL", url)
    return broker.backups.begin(url, full=body.get("full") is True)


def _backup_progress(broker: BrokerPort, _body: Body, _by: Requester) -> Answer:
    return broker.backups.progress()


def _ask_backup(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return broker.backups.parts.hear(body)


def _ask_turn(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return broker.backups.archiver.hear(body)


def _read_ahead(broker: BrokerPort, body: Body, _by: Requester) -> Answer:
    return {"is_read": broker.read_ahead(str(body["topic"]))}


# --- a standby ------------------------------------------------------------------------------------


def _standby(broker: BrokerPort, _body: Body, _by: Requester) -> Answer:
    return broker.standby.describe()


def _promote(broker: BrokerPort, _body: Body, _by: Requester) -> Future[Answer]:
    return broker.standby.promote()


# --- API keys -------------------------------------------------------------------------------------


def _create_key(broker: BrokerPort, body: Body, by: Requester) -> Answer:
    return api_keys.change(broker, "create_key", body, by)


def _list_keys(broker: BrokerPort, body: Body, by: Requester) -> Answer:
    return administration.act(broker.keys, "list_keys", body, is_near=by.is_near)


def _revoke_key(broker: BrokerPort, body: Body, by: Requester) -> Answer:
    return api_keys.change(broker, "revoke_key", body, by)


def _read_keys(broker: BrokerPort, _body: Body, _by: Requester) -> Answer:
    return api_keys.read(broker)


# --- answers that are batches ---------------------------------------------------------------------


def _read_peek(broker: BrokerPort, ticket: Body, by: Requester) -> Rows:
    page = peek(_view(broker, ticket), ticket, broker.clock.utc_ms(), by.sender.owner)
    return page.schema, iter([page])


def _read_scan(broker: BrokerPort, ticket: Body, _by: Requester) -> Rows:
    topic = _view(broker, ticket)
    checked = scan.parse(ticket, topic.partitions, broker.clock.utc_ms())
    return checked.schema, scan.scan(topic, checked)


def _read_claim(broker: BrokerPort, ticket: Body, _by: Requester) -> Rows:
    return claims.read(_view(broker, ticket), ticket)


def _read_history(broker: BrokerPort, ticket: Body, _by: Requester) -> Rows:
    name = browse.topic_name(ticket)
    _recorded(broker, name, ticket)
    checked = history.parse(broker.history.files, name, ticket)
    return checked.schema, history.read(name, checked)


def _read_payload(broker: BrokerPort, ticket: Body, _by: Requester) -> Rows:
    return payload_parts.SCHEMA, payload_parts.read(broker, ticket)


def _view(broker: BrokerPort, body: Body) -> ServedView:
    return broker.view(browse.topic_name(body))


def _topic(broker: BrokerPort, body: Body) -> ServedTopic:
    name = browse.topic_name(body)
    if parse_subscription(name)[1]:
        limit = "a topic, as what a producer changes counts in all of its subscriptions (rule 20)"
        raise BadRequest("topic", limit, name)
    return broker.runtime(name)


def _name(body: Body) -> str:
    name = body.get("name")
    if not isinstance(name, str):
        raise BadRequest("name", "the name of a topic", name)
    return name


_FUNCTIONS: dict[str, Callable[[BrokerPort, Body, Requester], Answer | Future[Answer]]] = {
    name: globals()[f"_{name}"] for name in ACTIONS
}
_READERS: dict[str, Callable[[BrokerPort, Body, Requester], Rows]] = {
    op: globals()[f"_read_{op}"] for op in TICKETS
}
