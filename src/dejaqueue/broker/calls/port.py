"""What the functions of calls need of the broker.

Room: broker. A port: broker.py is behind it, so that calls do not import the broker that has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dejaqueue.access.key_ring import KeyRing
from dejaqueue.access.quotas import Quotas
from dejaqueue.access.senders import Sender
from dejaqueue.broker.backup.backups import Backups
from dejaqueue.broker.history.history import History
from dejaqueue.broker.payloads.payloads import Payloads
from dejaqueue.broker.site import Site
from dejaqueue.broker.standby.standby import Standby
from dejaqueue.broker.topic.homes import Homes
from dejaqueue.broker.topic.peers import Peers
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.broker.topic.served_view import ServedView
from dejaqueue.broker.topic.writer import Writer
from dejaqueue.broker.transactions.transactions import Transactions
from dejaqueue.clock import Clock
from dejaqueue.journal.interface import JournalStore
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.lane import LaneAddress


class BrokerPort(Protocol):
    """A broker, as its calls see it; what the members do is said in broker.py."""

    clock: Clock
    settings: BrokerSettings
    store: JournalStore
    keys: KeyRing
    quotas: Quotas
    history: History
    transactions: Transactions
    homes: Homes
    backups: Backups
    site: Site
    standby: Standby
    payloads: Payloads
    started_us: int
    lane: LaneAddress | None
    peers: Peers | None

    def check_running(self) -> None: ...  # noqa: D102
    def runtime(self, name: str) -> ServedTopic: ...  # noqa: D102
    def view(self, name: str) -> ServedView: ...  # noqa: D102
    def serves(self, name: str) -> bool: ...  # noqa: D102
    def read_ahead(self, name: str) -> bool: ...  # noqa: D102
    def serving(self) -> list[str]: ...  # noqa: D102
    def topic(self, name: str, *, newest: bool = False) -> Topic: ...  # noqa: D102
    def topics(self) -> list[Topic]: ...  # noqa: D102
    def create_topic(self, topic: Topic, *, exist_ok: bool = False) -> Topic: ...  # noqa: D102
    def alter_topic(self, name: str, changes: dict[str, Any]) -> Topic: ...  # noqa: D102
    def delete_topic(self, name: str) -> None: ...  # noqa: D102
    def cluster(self, topic: str = "", *, servers: bool = False) -> dict[str, Any]: ...  # noqa: D102
    def open_write(self, stream: WriteStream, sender: Sender) -> Writer: ...  # noqa: D102
    def payload_owner(self, name: str) -> str: ...  # noqa: D102
    def erase_payloads(self, names: Sequence[str]) -> None: ...  # noqa: D102
    def act_on_servers(self, name: str, body: dict[str, Any]) -> dict[str, Any]: ...  # noqa: D102
