"""What answers say, in one word: for asserts on what may be None where nobody waits for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dejaqueue.client.results import Settled
from dejaqueue.model import RowStatus


def is_ok(answer: Settled | RowStatus | None) -> bool:
    """True if there is an answer, and it is good for all rows."""
    return answer is not None and answer.ok


def listed(column: npt.NDArray[np.integer[Any]] | None) -> list[int]:
    """What is in a column; it must be there."""
    assert column is not None
    found: list[int] = column.tolist()
    return found
