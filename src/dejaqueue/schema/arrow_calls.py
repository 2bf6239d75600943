"""pyarrow.compute, loaded when one of its functions is first used.

Room: schema.
Holds: importing this costs nothing. pyarrow.compute makes a Python function of each of some 300
kernels when it is imported, 35 ms; a program that sends a message by itself needs none of them.

    from dejaqueue.schema import arrow_calls as pc

    pc.equal(column, value)
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """A function of pyarrow.compute. Raises AttributeError."""
    function = getattr(importlib.import_module("pyarrow.compute"), name)
    globals()[name] = function  # the next time it is found without asking
    return function
