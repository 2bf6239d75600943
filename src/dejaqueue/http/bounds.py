"""What one connection to the HTTP port may do: how large, how slow and how many.

Room: http. Numbers only.
Holds: each of them comes from a setting or a limit, or says here why it is so.
See: protocol.py, which keeps them; limits.py and settings.ServerSettings.
"""

from __future__ import annotations

from dataclasses import dataclass

from dejaqueue import limits
from dejaqueue.settings import ServerSettings

LOOK_SECONDS = 1.0
"""How often connections are looked at: a breach is noticed at most this much later."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a connection may do.

    Attributes:
        connections_max: at once.
        probes_max: beyond those, each for one probe; when one more comes, the oldest is closed.
        head_bytes_max, header_count_max: request line and headers.
        body_bytes_max: one body.
        bodies_bytes_max: all bodies that are being received.
        head_seconds: from the first byte of a request to the end of its headers.
        body_seconds: that a body may take, and a second more for each `body_bytes_per_second`.
        idle_seconds: without a request.
        stuck_seconds: without taking a byte of an answer.
        pipelined_max: requests that wait behind one that is being answered.
        look_seconds: how often all of it is looked at.
    """

    connections_max: int = 4_096
    probes_max: int = 64
    head_bytes_max: int = limits.HTTP_HEAD_BYTES_MAX
    header_count_max: int = limits.HTTP_HEADERS_MAX
    body_bytes_max: int = 192 << 20
    bodies_bytes_max: int = 512 << 20
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    body_bytes_per_second: int = limits.HTTP_BODY_BYTES_PER_SECOND_MIN
    idle_seconds: float = 75.0
    stuck_seconds: float = 30.0
    pipelined_max: int = limits.HTTP_PIPELINED_MAX
    look_seconds: float = LOOK_SECONDS

    @classmethod
    def of(cls, settings: ServerSettings) -> Bounds:
        """As an operator has set them."""
        return cls(
            connections_max=settings.http_connections_max,
            body_bytes_max=settings.http_body_bytes_max,
            bodies_bytes_max=settings.http_bodies_bytes_max,
            head_seconds=settings.http_head_ms_max / 1_000,
            body_seconds=settings.http_body_ms_max / 1_000,
            idle_seconds=settings.http_idle_ms_max / 1_000,
            stuck_seconds=settings.http_body_ms_max / 1_000,
        )
