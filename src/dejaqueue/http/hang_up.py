"""Whether the other end of a connection has closed it, by the kernel's word.

Room: http. An event loop learns of an end a turn after the kernel; who is about to answer with
messages asks here first, since those of an answer that nobody reads wait for their lease's end.

See: poll(2), POLLRDHUP.
"""

from __future__ import annotations

import select

_ENDS = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
"""What the kernel says of an end; systems other than Linux tell of the first by reading alone."""


def has_hung_up(descriptor: int) -> bool:
    """True if the peer of a socket has closed its side, or the connection broke. Never waits.

    Args:
        descriptor: the socket's, -1 = it is closed here.
    """
    if descriptor < 0:
        return True
    poller = select.poll()
    poller.register(descriptor, getattr(select, "POLLRDHUP", 0))
    return any(flags & _ENDS for _, flags in poller.poll(0))
