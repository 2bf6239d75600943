"""Which JetStream servers run beside the brokers of a cluster: each says so itself, others hear it.

    fact servers/NODE    where its server is; or that it has left

Room: cluster.
Holds: what is said goes before what the settings of a broker name; a node that has left is not
taken up again by settings that still name it. What is known is kept beside the server's data, so
that a restart begins with it.
See: jetstream.py; care.py for leaving; docs/adr/0017-servers-join-and-leave.md.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dejaqueue.clock import Clock, SystemClock, Wake
from dejaqueue.cluster.jetstream_settings import Node
from dejaqueue.coordinator.interface import Coordinator, Fact, Watch
from dejaqueue.directories import make_directory
from dejaqueue.errors import DejaQError

log = logging.getLogger("dejaqueue.cluster")

PREFIX = "servers/"
FILE = "servers.json"
LOOK_AGAIN_MS = 10_000


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a node's server is.

    Attributes:
        left: it is none of the cluster's any more.
    """

    node: Node
    left: bool = False

    def to_bytes(self) -> bytes:
        """As a fact's value."""
        return json.dumps(self.to_dict()).encode()

    def to_dict(self) -> dict[str, object]:
        """As JSON has it."""
        one = self.node
        return {
            "name": one.name,
            "host": one.host,
            "client_port": one.client_port,
            "route_port": one.route_port,
            "left": self.left,
        }

    @classmethod
    def of(cls, values: Mapping[str, object]) -> ServerAddress:
        """From what `to_dict` made."""
        node = Node(
            str(values["name"]),
            str(values["host"]),
            int(str(values["client_port"])),
            int(str(values["route_port"])),
        )
        return cls(node, bool(values.get("left")))


def addresses_of(facts: Iterable[Fact]) -> dict[str, ServerAddress]:
    """What was said, by node."""
    addresses = (ServerAddress.of(json.loads(fact.value)) for fact in facts)
    return {address.node.name: address for address in addresses}


def merged(settings: Sequence[Node], said: Mapping[str, ServerAddress], own: Node) -> list[Node]:
    """The servers there are, by name.

    >>> a, b, c = (Node(name, "127.0.0.1", 1, 2) for name in "abc")
    >>> said = {"b": ServerAddress(b, left=True), "c": ServerAddress(c)}
    >>> [one.name for one in merged([a, b], said, a)]
    ['a', 'c']
    """
    servers = {node.name: node for node in settings}
    servers |= {name: address.node for name, address in said.items()}
    gone = {name for name, address in said.items() if address.left}
    servers[own.name] = own
    return [servers[name] for name in sorted(servers) if name not in gone or name == own.name]


def read_addresses(directory: Path) -> dict[str, ServerAddress]:
    """What was known when it was last written, by node; nothing at first."""
    try:
        values_read = json.loads((directory / FILE).read_text(encoding="utf-8"))
        addresses = [ServerAddress.of(values) for values in values_read]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        log.warning("%s cannot be read, settings are used: %s", directory / FILE, wrong)
        return {}
    return {address.node.name: address for address in addresses}


def write_addresses(directory: Path, addresses: Iterable[ServerAddress]) -> None:
    """Keep what is known, whole or not at all."""
    make_directory(directory)
    text = json.dumps([address.to_dict() for address in addresses], indent=1)
    fresh = directory / f"{FILE}.new"
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(directory / FILE)


class ServerList:
    """Says where this node's server is, and hears of the others.

    Args:
        own: this node.
        settings: the nodes that this broker's settings name.
        directory: of this node's server.
        use: called with all there are, whenever that has changed.
        on_left: called once it was said that this node has left.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        own: Node,
        settings: Sequence[Node],
        directory: Path,
        use: Callable[[list[Node]], None],
        on_left: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        self._coordinator, self._own = coordinator, own
        self._settings, self._directory = list(settings), directory
        self._use, self._on_left = use, on_left
        self._clock = clock or SystemClock()
        self._known: dict[str, ServerAddress] = {}
        self._used: list[Node] = []
        self._wake = Wake()
        self._stopped = self._has_left = False
        self._watch: Watch | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Say where it is. Raises Unavailable."""
        self._coordinator.put(PREFIX + self._own.name, ServerAddress(self._own).to_bytes())
        self.refresh()
        self._watch = self._coordinator.watch(PREFIX, self._wake.ring)
        self._thread = threading.Thread(target=self._run, name="dejaq-servers", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped:
            self._clock.wait_until(self._clock.now_us() + LOOK_AGAIN_MS * 1_000, self._wake)
            try:
                self.refresh()
            except DejaQError as error:
                if not self._stopped:
                    log.warning("cannot see which servers there are: %s", error)

    def refresh(self) -> None:
        """Look now. Raises Unavailable."""
        known = addresses_of(self._coordinator.list(PREFIX))
        if known != self._known:
            self._known = known
            write_addresses(self._directory, known.values())
        own = known.get(self._own.name)
        if own is not None and own.left:
            if not self._has_left:
                self._has_left = True
                self._on_left()
            return
        nodes = merged(self._settings, known, self._own)
        if nodes != self._used:
            self._used = nodes
            self._use(nodes)

    def close(self) -> None:
        """Hear no more; twice is fine."""
        self._stopped = True
        self._wake.ring()
        if self._watch is not None:
            self._watch.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
