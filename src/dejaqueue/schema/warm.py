"""Warming up Arrow before the first message rather than on it.

Room: schema.
Holds: calling it twice costs nothing.
"""

from __future__ import annotations

import pyarrow as pa


def warm_up() -> None:
    """Have pyarrow do now what it does on first use.

    The first conversion between Python, numpy and Arrow makes pyarrow look for pandas and import it
    if it is there: half a second or more on the thread that happens to be first, which made the
    first messages of a consumer as late. Without pandas this costs nothing.
    """
    pa.array([0]).to_numpy()
