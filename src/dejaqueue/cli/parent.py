"""What one process of a broker of several has of its parent: settings, and a part in its addresses.

Room: cli. The parent tells it in one variable of the environment and two inherited sockets.
Holds: a process whose parent has ended ends at once: nobody would start it again, and the next
parent wants its shards.
See: processes.py, the parent; serve.py.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dejaqueue.cluster.node import Node
    from dejaqueue.coordinator.interface import Coordinator
    from dejaqueue.flight.server import FlightServer
    from dejaqueue.flight.shared_address import SharedAddress

VARIABLE = "DEJAQ_PROCESS"
"""No setting: their variables have two underscores."""


@dataclass
class Parent:
    """As the parent told it.

    Attributes:
        settings: that win over all others, by name.
        names: of all processes.
        port: of the Flight address that the processes have together.
        http_socket: listens at their HTTP address.
    """

    settings: dict[str, object]
    names: tuple[str, ...]
    port: int
    http_socket: socket.socket
    _address: SharedAddress | None = None

    @classmethod
    def of_this_process(cls) -> Parent | None:
        """None: it has no such parent."""
        text = os.environ.pop(VARIABLE, "")
        if not text:
            return None
        told = json.loads(text)
        listening = socket.socket(fileno=told["http_socket"])
        listening.set_inheritable(False)
        return cls(told["settings"], tuple(told["names"]), told["port"], listening)

    def end_with_parent(self, coordinator: Coordinator) -> None:
        """From now on, end when the parent has."""
        from dejaqueue.coordinator.parent_facts import ParentCoordinator

        if isinstance(coordinator, ParentCoordinator):
            coordinator.when_ended(lambda: os.kill(os.getpid(), signal.SIGKILL))

    def enter(self, flight: FlightServer, node: Node) -> None:
        """Have the Flight address when it is this process's turn."""
        from dejaqueue.flight.shared_address import SharedAddress

        self._address = SharedAddress(flight.enter, node.coordinator, node.name, self.port)
        self._address.start()

    def leave(self) -> None:
        """Do not take the address any more. Twice is fine."""
        address, self._address = self._address, None
        if address is not None:
            address.stop()
