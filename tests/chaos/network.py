"""A network of its own for each broker: namespaces, a bridge between them, links that can fail.

Every machine (a broker, the servers, the clients) is a namespace with one address. A connection
from one to another goes, without either knowing, by way of a proxy of that pair: its address is
translated as it leaves. So a link can be slow or cut (the proxy), and lose packets or all of them,
both ways or one (the packet filter at both ends). Nothing leaves the namespaces; there is no way
to any other network.

    with Network({"a": [7464], "k": []}) as network:   # k: where this process lives from now on
        network.lose([("a", "b")])                      # b does not hear a
        network.mend()
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from dejaqueue.testing.cutting_proxy import CuttingProxy

PREFIX = "dq"
CLIENTS = "k"
CLONE_NEWNET = 0x40000000
NETNS = Path("/run/netns")


def missing() -> str:
    """What keeps namespaces from being made here, in words; "" = nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "nft", "setpriv", "nsenter"):
        if shutil.which(program) is None and not Path(f"/usr/sbin/{program}").exists():
            return f"the program {program} (Debian: iproute2, nftables, util-linux)"
    name = f"{PREFIX}{os.getpid()}try"
    try:
        _run("ip", "netns", "add", name)
        _run("ip", "netns", "exec", name, "nft", "add", "table", "ip", "t")
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not allowed here: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return ""


def _run(*command: str, text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout


def sweep() -> None:
    """Remove what a run that was killed has left."""
    for path in NETNS.glob(f"{PREFIX}[0-9]*"):
        found = re.match(rf"{PREFIX}(\d+)", path.name)
        if found and not Path(f"/proc/{found.group(1)}").exists():
            subprocess.run(["ip", "netns", "del", path.name], capture_output=True, check=False)


class Network:
    """Machines and what is between them. This process moves into the namespace of the clients.

    Args:
        ports: of each machine, those that others connect to.
    """

    def __init__(self, ports: Mapping[str, Sequence[int]]) -> None:
        self.names = [*ports, *([] if CLIENTS in ports else [CLIENTS])]
        self._ports = {name: list(ports.get(name, [])) for name in self.names}
        self._tag = f"{PREFIX}{os.getpid()}"
        self._home: int | None = None
        self._links: dict[tuple[str, str], list[CuttingProxy]] = {}
        self._lost: dict[tuple[str, str], int] = {}
        self._guard = threading.RLock()

    # --- names ----------------------------------------------------------------------------------

    def address(self, name: str) -> str:
        """Of a machine."""
        return f"10.77.0.{self.names.index(name) + 1}"

    def at(self, address: str) -> str:
        """Whose address that is."""
        return self.names[int(address.rpartition(".")[2]) - 1]

    def _alias(self, source: str, target: str) -> str:
        """What stands between a machine and another that it connects to."""
        return f"10.77.{self.names.index(source) + 10}.{self.names.index(target) + 1}"

    def netns(self, name: str) -> str:
        """The name of its namespace."""
        return f"{self._tag}{name}"

    def inside(self, name: str) -> list[str]:
        """What to put before a command, so that it runs there and ends with this process."""
        return [
            "nsenter",
            f"--net={NETNS / self.netns(name)}",
            "setpriv",
            "--pdeathsig",
            "KILL",
            "--",
        ]

    def pairs(self) -> list[tuple[str, str]]:
        """(who connects, to whom), of all machines with ports."""
        return [(i, j) for i in self.names for j in self.names if i != j and self._ports[j]]

    # --- life -----------------------------------------------------------------------------------

    def __enter__(self) -> Network:
        sweep()
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _build(self) -> None:
        switch = self.netns("w")
        _run("ip", "netns", "add", switch)
        for command in ("link add br0 type bridge", "link set br0 up", "link set lo up"):
            _run("ip", "-n", switch, *command.split())
        for name in self.names:
            there = self.netns(name)
            _run("ip", "netns", "add", there)
            plug = f"link add eth0 type veth peer name v{name} netns {switch}"
            _run("ip", "-n", there, *plug.split())
            for command in (
                f"address add {self.address(name)}/16 dev eth0",
                "link set lo up",
                "link set eth0 up",
            ):
                _run("ip", "-n", there, *command.split())
            for command in (f"link set v{name} master br0", f"link set v{name} up"):
                _run("ip", "-n", switch, *command.split())
        for source, target in self.pairs():
            alias = f"address add {self._alias(source, target)}/16 dev eth0"
            _run("ip", "-n", self.netns(CLIENTS), *alias.split())
        for name in self.names:
            self._filter(self.netns(name), self._translation(name))
        self._move(self.netns(CLIENTS))
        for source, target in self.pairs():
            alias = self._alias(source, target)
            self._links[source, target] = [
                CuttingProxy((self.address(target), port), listen=(alias, port), source=alias)
                for port in self._ports[target]
            ]

    def _move(self, netns: str) -> None:
        """This thread, and those it starts from now on, live there."""
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY)
        with (NETNS / netns).open() as there:
            _set_netns(there.fileno())

    def close(self) -> None:
        """Take everything down, and come home; twice is fine."""
        for proxies in self._links.values():
            for proxy in proxies:
                proxy.close()
        self._links.clear()
        if self._home is not None:
            _set_netns(self._home)
            os.close(self._home)
            self._home = None
        for name in (*self.names, "w"):
            subprocess.run(
                ["ip", "netns", "del", self.netns(name)], capture_output=True, check=False
            )

    # --- the packet filter ----------------------------------------------------------------------

    def _filter(self, netns: str, rules: str) -> None:
        _run("ip", "netns", "exec", netns, "nft", "-f", "-", text=rules)

    def _translation(self, name: str) -> str:
        """Connections to another machine go to the proxy of that pair."""
        own = self.address(name)
        lines = [
            f"ip saddr {own} ip daddr {self.address(target)} dnat to {self._alias(name, target)}"
            for source, target in self.pairs()
            if source == name
        ]
        return (
            "table ip chaos {\n"
            " chain way { type nat hook output priority -100; " + "; ".join(lines) + "; }\n"
            " chain in { type filter hook input priority 0; }\n"
            " chain out { type filter hook output priority 0; }\n}\n"
        ).replace("; ; }", "; }")

    def lose(self, pairs: Iterable[tuple[str, str]], percent: int = 100) -> None:
        """Of the packets from one machine to another, so many are lost on the way."""
        with self._guard:
            self._lost |= dict.fromkeys(pairs, percent)
            self._write({name for pair in pairs for name in pair})

    def join(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Nothing is lost any more between these."""
        with self._guard:
            gone = [pair for pair in pairs if self._lost.pop(pair, None) is not None]
            self._write({name for pair in gone for name in pair})

    def delay(self, name: str, delay_ms: int) -> None:
        """Everything from and to a machine takes so much longer; 0 = no more."""
        for pair, proxies in self._links.items():
            if name in pair:
                for proxy in proxies:
                    proxy.delay(delay_ms)

    def reset(self, name: str) -> None:
        """All its connections break, and may be made again at once."""
        for pair, proxies in self._links.items():
            if name in pair:
                for proxy in proxies:
                    proxy.cut()
                    proxy.mend()

    def mend(self) -> None:
        """Everything arrives, at once."""
        self.join(list(self._lost))
        for proxies in self._links.values():
            for proxy in proxies:
                proxy.mend()

    def _write(self, names: Iterable[str]) -> None:
        """Set the rules of these machines anew."""
        for name in names:
            if name == CLIENTS:
                continue  # the proxies live there too: the other end does it
            lines = ["flush chain ip chaos in", "flush chain ip chaos out"]
            for (source, target), percent in self._lost.items():
                chance = "" if percent >= 100 else f"numgen random mod 100 < {percent} "
                both = f"{{ {self._alias(source, target)}, {self._alias(target, source)} }}"
                if source == name:
                    lines.append(f"add rule ip chaos out ip daddr {both} {chance}drop")
                elif target == name:
                    lines.append(f"add rule ip chaos in ip saddr {both} {chance}drop")
            self._filter(self.netns(name), "\n".join(lines) + "\n")


def _set_netns(handle: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
