"""Which numbers may be due times.

Room: schema. Numbers in, BadRequest out.
Holds: 0 (at once) or an instant from 1973 to 9999 in UTC milliseconds; a number that looks like
seconds is refused, because it would deliver at once what is meant for years later (rule 15).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dejaqueue import limits
from dejaqueue.errors import BadRequest

_LIMIT = f"UTC milliseconds: 0, or from {limits.INSTANT_MS_MIN} to {limits.INSTANT_MS_MAX}"
FEW = 16
"""Fewer numbers than that are compared faster in Python than by two calls of numpy."""
_SECONDS = f"{_LIMIT} (this looks like seconds: multiply by 1000)"


def check_instant(field: str, instant_ms: int) -> None:
    """Raise BadRequest if a number is no instant, or looks like seconds."""
    if instant_ms and not limits.INSTANT_MS_MIN <= instant_ms <= limits.INSTANT_MS_MAX:
        is_small = 0 < instant_ms < limits.INSTANT_MS_MIN
        raise BadRequest(field, _SECONDS if is_small else _LIMIT, instant_ms)


def check_instants(field: str, instants_ms: npt.NDArray[np.int64]) -> None:
    """The same of a column; the error names the first row that is wrong."""
    if not len(instants_ms):
        return
    if len(instants_ms) < FEW:
        few = instants_ms.tolist()
        low, high = min(few), max(few)
    else:
        low, high = int(instants_ms.min()), int(instants_ms.max())
    if low >= limits.INSTANT_MS_MIN and high <= limits.INSTANT_MS_MAX:
        return
    wrong = (instants_ms < limits.INSTANT_MS_MIN) & (instants_ms != 0)
    wrong |= instants_ms > limits.INSTANT_MS_MAX
    rows = np.flatnonzero(wrong)
    if len(rows):
        row = int(rows[0])
        check_instant(f"{field} of row {row}", int(instants_ms[row]))
