"""Calls that change API keys: answered when the other brokers of the cluster know of it, too.

Room: broker. Waits for the other brokers, for PEER_SECONDS_MAX at most.
Holds: a change is durable before others are told of it, and answered whether or not they say that
they know it: whoever is silent hears of it from the coordinator, within the bound that it has.
See: access/administration.py, what a change is; cluster/shared_keys.py; docs/adr/0020.
"""

from __future__ import annotations

import logging
from concurrent.futures import wait
from typing import Any

from dejaqueue.access import administration
from dejaqueue.access.senders import Requester
from dejaqueue.broker.calls.port import BrokerPort
from dejaqueue.broker.topic.peers import READ_KEYS
from dejaqueue.errors import DejaQError

PEER_SECONDS_MAX = 1.0

log = logging.getLogger("dejaqueue.access")


def change(broker: BrokerPort, name: str, body: dict[str, Any], by: Requester) -> dict[str, Any]:
    """Do `create_key` or `revoke_key`, and have the others know of it. Raises as administration."""
    answer = administration.act(broker.keys, name, body, is_near=by.is_near)
    try:
        _tell(broker)
    except DejaQError as error:  # it is done all the same
        log.info("other brokers hear of a change of API keys later: %s", error)
    return answer


def read(broker: BrokerPort) -> dict[str, Any]:
    """Another broker has changed the keys: know them. Raises Unavailable."""
    broker.keys.refresh()
    return {}


def _tell(broker: BrokerPort) -> None:
    """Return when all others have read the keys, or one of them takes too long. Raises
    Unavailable."""
    if broker.peers is None:
        return
    cluster = broker.cluster()
    others = [one["url"] for one in cluster["nodes"] if one["node"] != cluster["node"]]
    wait([broker.peers.ask(url, READ_KEYS, {}) for url in others if url], PEER_SECONDS_MAX)
