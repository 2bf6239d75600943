"""Which sockets a program and those it started have open beyond this machine.

Room: cli. Reads /proc; where there is none, nothing can be said.
Holds: nothing is opened and nobody is asked.
"""

from __future__ import annotations

import os
from ipaddress import ip_address
from pathlib import Path

PROC = Path("/proc")
TABLES = ("tcp", "tcp6", "udp", "udp6")


def beyond_loopback(pid: int) -> list[str] | None:
    """`table address:port` of each socket that is bound to more than loopback; None = unknown."""
    if not (PROC / "net" / "tcp").exists():
        return None
    inodes = {inode for found in _family(pid) for inode in _inodes(found)}
    open_ones = []
    for table in TABLES:
        path = PROC / "net" / table
        if not path.exists():
            continue
        for line in path.read_text(encoding="ascii").splitlines()[1:]:
            cells = line.split()
            address, _, port = cells[1].partition(":")
            if cells[9] in inodes and not is_loopback(address):
                open_ones.append(f"{table} {address}:{int(port, 16)}")
    return sorted(open_ones)


def is_loopback(address: str) -> bool:
    """True for an address of loopback, as /proc/net writes it: words of the machine, in hex.

    >>> is_loopback("0100007F"), is_loopback("00000000")
    (True, False)
    """
    words = bytes.fromhex(address)
    # Each word of four bytes is in this machine's order.
    straight = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
    found = ip_address(straight)
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _family(pid: int) -> list[int]:
    """A process and all that come from it."""
    parents: dict[int, list[int]] = {}
    for folder in PROC.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        parent = int(stat.rpartition(")")[2].split()[1])
        parents.setdefault(parent, []).append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += parents.get(one, [])
    return found


def _inodes(pid: int) -> list[str]:
    inodes = []
    try:
        for name in os.listdir(PROC / str(pid) / "fd"):
            target = os.readlink(PROC / str(pid) / "fd" / name)
            if target.startswith("socket:["):
                inodes.append(target[8:-1])
    except OSError:
        pass  # it has ended, or closed one, meanwhile
    return inodes
