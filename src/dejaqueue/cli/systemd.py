"""What `dejaq serve` tells systemd, if that started it: that it is ready, reads again, or stops.

Room: cli. Speaks the protocol of `Type=notify`; says nothing where nobody asked.
Holds: a systemd that does not hear never hinders the broker.
See: deploy/systemd/dejaq.service; docs/guides/systemd.md.
"""

from __future__ import annotations

import logging
import os
import socket

SOCKET = "NOTIFY_SOCKET"
"""The variable that names where to; `@` at its start stands for the zero byte of Linux."""
SEND_SECONDS = 1.0
READY, RELOADING, STOPPING = "READY=1", "RELOADING=1", "STOPPING=1"

log = logging.getLogger("dejaqueue.serve")


def tell_systemd(state: str, status: str) -> None:
    """Say where the broker is.

    Args:
        status: for people, as `systemctl status` shows it.
    """
    address = os.environ.get(SOCKET, "")
    if not address:
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.settimeout(SEND_SECONDS)
        try:
            to.sendto(f"{state}\nSTATUS={status}".encode(), address)
        except OSError as error:
            log.warning("systemd cannot be told %s: %s", state, error)
