"""What brokers of a cluster say to one another about topics and transactions.

    tell_transaction    what a home decided, to the owner of a partition that takes part
    ask_transaction     what a home decided, asked by the owner of such a partition
    ask_home            what the shards of a topic agree on, asked by the owner of a shard
    ask_shard           that a shard keeps less of the topic's backlog, asked by its home
    ask_history         what a broker recorded of a message, asked by the owner of its topic
    ask_erasure         that it erases from what it recorded of a partition, asked by its owner
    ask_keys            which keys are taken in a topic to which dead letters go back
    bring_letters       dead letters that go back to a topic which that broker serves
    read_keys           that the API keys of the cluster have changed
    ask_backup          a step of its part of a backup, asked by the broker that takes it
    read_ahead          that it reads a topic which it is to serve soon, asked by its owner
    ask_turn            a step of a turn of the archive, asked by the broker that takes cuts

Room: broker. A port: the Flight server is behind it; a broker that is alone has none.
Holds: a tell is answered when the decision is durable there; both may be said again at any time.
See: homes.py; transactions/coordinator.py; flight/peers.py; docs/adr/0025.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

TELL, ASK, HOME, SHARD = "tell_transaction", "ask_transaction", "ask_home", "ask_shard"
HISTORY, BACKUP, TURN = "ask_history", "ask_backup", "ask_turn"
ERASURE, KEYS, READ_KEYS = "ask_erasure", "ask_keys", "read_keys"
READ_AHEAD = "read_ahead"
"""Their names in the table of calls (access/calls.py); bring_letters is far_letters.py's."""


class Peers(Protocol):
    """The way to other brokers."""

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        """Have another broker do one of these. Returns at once; fails with what it says, or
        with Unavailable: then it may have been done.

        Args:
            body: JSON, but for `content`, bytes that go behind it.
        """
        ...
