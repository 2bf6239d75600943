"""What a consumer is, beside its stream.

Room: client. Values only.
See: consume_core.py, which keeps to them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsumeSettings:
    """What a consumer is, beside its stream.

    Attributes:
        prefetch: rows on their way or held, at most.
        auto_extend: leases are extended until their rows are settled.
        retry_ms_max: how long to look for a broker after the stream broke.
        rows_max: rows to take in all; no more are asked for. None = no limit.
        until_settled: `prefetch` counts rows that were handed over, too, until they are settled.
    """

    prefetch: int
    auto_extend: bool
    retry_ms_max: int
    rows_max: int | None = None
    until_settled: bool = False
