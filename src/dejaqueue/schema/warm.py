"""Warming up Arrow before the first message rather than on it.

Room: schema.
Holds: calling it twice costs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


class _PandasRefusal(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pyarrow does not need it here", name=fullname)
        return None


def warm_up(*, has_pandas: bool = True) -> None:
    """Have pyarrow do now what it does on first use.

    The first conversion between Python, numpy and Arrow makes pyarrow look for pandas and import it
    if it is there: half a second or more on the thread that happens to be first, which made the
    first messages of a consumer as late. Without pandas this costs nothing.

    Args:
        has_pandas: False = pyarrow is told once that there is none, which it remembers: for a
            process that runs none of a user's code, as pandas takes 40 MB and 0.2 s.
    """
    if has_pandas or "pandas" in sys.modules:
        pa.array([0]).to_numpy()
        return
    none = _PandasRefusal()
    sys.meta_path.insert(0, none)
    try:
        pa.array([0]).to_numpy()
    finally:
        sys.meta_path.remove(none)
