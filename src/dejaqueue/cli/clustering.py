"""The part of `dejaq serve` that is about other brokers: a server beside this one, and its place.

Room: cli. Puts cluster/ together; decides nothing else.
See: serve.py; cluster/embedded.py, cluster/node.py.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dejaqueue.cli.parent import Parent
from dejaqueue.errors import Unavailable

if TYPE_CHECKING:
    from dejaqueue.broker.broker import Broker
    from dejaqueue.cluster.care import Care
    from dejaqueue.cluster.jetstream import JetStreamServer
    from dejaqueue.cluster.node import Node
    from dejaqueue.cluster.servers import ServerList
    from dejaqueue.cluster.witness import Witness
    from dejaqueue.coordinator.interface import Coordinator
    from dejaqueue.flight.server import FlightServer
    from dejaqueue.journal.records.nats.store import NatsRecordStore
    from dejaqueue.settings import BrokerSettings

READY_MS = 2_000
PAUSE_SECONDS = 0.2

log = logging.getLogger("dejaqueue.serve")


BESIDE_JOURNAL = "journal"
"""In place of a coordinator's URL: where the journals are."""


def coordinator_url(settings: BrokerSettings) -> str:
    """Where brokers agree. "" = this one is alone."""
    url = settings.cluster.coordinator
    return settings.journal.url if url == BESIDE_JOURNAL else url


class ClusterSeat:
    """Where this broker stands among others; alone, it does nothing.

    Args:
        settings: as they were read.
        parent: what this process has in common with others; None = it has no such parent.

    Attributes:
        settings: for the broker: with the server beside it, if there is one.
        node: what the broker shares; None = it is alone.

    Raises:
        BadRequest: settings that do not fit each other.
    """

    def __init__(self, settings: BrokerSettings, parent: Parent | None = None) -> None:
        self._parent = parent
        self.settings = self._given = settings
        self.node: Node | None = None
        self._list: ServerList | None = None
        self._server: JetStreamServer | None = None
        self._witness: Witness | None = None
        self._stopping: Sequence[signal.Signals] = ()
        if settings.cluster.nodes:
            from dejaqueue.cluster.embedded import server_of

            self._server = server_of(settings)

    def beside(self, settings: BrokerSettings) -> BrokerSettings:
        """Settings that were read, with the server beside this broker."""
        if self._server is None:
            return settings
        from dejaqueue.cluster.embedded import settings_beside

        return settings_beside(settings, self._server)

    def prepare(self, stopping: Sequence[signal.Signals]) -> bool:
        """Start the server beside this broker and open the coordinator.

        Returns:
            False if a signal to stop came while it waited for the other servers.
        """
        self._stopping = stopping
        if self._server is not None:
            from dejaqueue.cluster.embedded import warn_if_plain

            warn_if_plain(self._given)
            self._server.start(wait=False)
            server = self._server
            if not self._comes_about(lambda: server.wait_until_ready(READY_MS)):
                self.close()
                return False
            self.settings = self.beside(self.settings)
        cluster = self.settings.cluster
        if cluster.coordinator:
            from dejaqueue.cluster.embedded import keys_beside
            from dejaqueue.cluster.node import Node
            from dejaqueue.coordinator.registry import open_coordinator

            name = cluster.node or socket.gethostname()
            opened: list[Coordinator] = []
            url = coordinator_url(self.settings)
            if not self._comes_about(lambda: opened.append(open_coordinator(url))):
                self.close()
                return False
            keys = keys_beside(self._given, opened[0])
            self.node = Node(
                name,
                opened[0],
                cluster.lease_ms,
                keys=keys,
                slots=cluster.slots,
                adopts=cluster.adopt,
            )
            if self._parent is not None:
                self.node.planned = self._parent.names
                self._parent.end_with_parent(opened[0])
        return True

    def start(self, broker: Broker) -> bool:
        """Start the broker; one of several waits for servers that cannot answer yet.

        Returns:
            False if a signal to stop came while it waited.
        """
        if self.node is None:
            broker.start()
            return True
        return self._comes_about(broker.start)

    def reload_files(self) -> None:
        """Have the server beside this broker take its certificates up anew."""
        if self._server is not None:
            self._server.reload_files()

    def join(self, broker: Broker, flight: FlightServer, http_port: int, *, tls: bool) -> bool:
        """Take part, now that the ports are open.

        Returns:
            False if a signal to stop came while it waited for the servers of the cluster.
        """
        node = self.node
        if node is None:
            return True
        node.on_gone = flight.drop
        if self._server is not None:
            self._list = self._list_of_servers(self._server, node.coordinator)
            self._heal_copies(broker, self._server)
            node.disk = self._server.disk
        node.care = self._care(broker, node)
        self._witness = self._witness_of(coordinator_url(self.settings))
        if self._witness is not None:
            node.on_join = self._witness.saw_join
        address = self.settings.cluster.advertise or self.settings.server.host
        ending = "s" if tls else ""
        url = f"dejaq{ending}://{address}:{flight.port}"
        http_url = f"http{ending}://{address}:{http_port}"
        if not self._comes_about(lambda: node.start(broker, url, http_url)):
            return False
        if self._list is not None:
            self._list.start()
        if self._parent is not None:
            self._parent.enter(flight, node)
        return True

    def _list_of_servers(self, server: JetStreamServer, coordinator: Coordinator) -> ServerList:
        from dejaqueue.cluster.embedded import list_beside
        from dejaqueue.cluster.turn import Turn

        server.turn = Turn(server.node.name, coordinator)
        return list_beside(server, self._given, coordinator, self._stop)

    @staticmethod
    def _witness_of(coordinator: str) -> Witness | None:
        """What says at once that this process is dead; None = the others wait for its lease."""
        from dejaqueue.cluster.witness import Witness

        if coordinator.startswith(("memory:", "inherited:")):  # dead with it; its parent sees it
            return None
        witness = Witness(coordinator)
        try:
            witness.start()
        except OSError as error:
            log.warning("if this broker dies, others wait for the end of its lease: %s", error)
            return None
        return witness

    @staticmethod
    def _stop() -> None:
        """This node has left the cluster: hand over and end."""
        log.warning("this node has left the cluster, and stops")
        os.kill(os.getpid(), signal.SIGTERM)

    def _care(self, broker: Broker, node: Node) -> Care | None:
        """What removes and repairs servers of JetStream, where the journals are on them."""
        from dejaqueue.cluster.care import Care

        records = self._nats_records(broker)
        return None if records is None else Care(node.name, node.coordinator, records, self._server)

    @staticmethod
    def _nats_records(broker: Broker) -> NatsRecordStore | None:
        from dejaqueue.journal.records.nats.store import NatsRecordStore
        from dejaqueue.journal.records.store import RecordJournalStore

        store = broker.store
        if isinstance(store, RecordJournalStore) and isinstance(store.records, NatsRecordStore):
            return store.records
        return None

    def _heal_copies(self, broker: Broker, server: JetStreamServer) -> None:
        """Have a copy of the journals that is not whole rebuilt, where it is this server's."""
        records = self._nats_records(broker)
        if records is not None:
            records.on_sick(server.heal)
            # The others read it through since it was started; nobody but this one can empty it.
            records.distrust(server.node.name)

    def leave(self) -> None:
        """Hand over what this broker serves. Twice is fine."""
        if self._parent is not None:
            self._parent.leave()
        if self._list is not None:
            self._list.close()
        if self.node is not None:
            self.node.stop()
        if self._witness is not None:
            self._witness.close()

    def close(self) -> None:
        """Stop the server beside this broker."""
        if self._server is not None:
            self._server.stop()

    def _comes_about(self, call: Callable[[], None]) -> bool:
        """Call until servers answer; False if a signal to stop comes first."""
        said = False
        while True:
            try:
                call()
            except Unavailable as reason:
                if not said:
                    log.info("waiting for the servers of the cluster: %s", reason)
                said = True
                if signal.sigtimedwait(self._stopping, PAUSE_SECONDS) is not None:
                    return False
            else:
                return True
