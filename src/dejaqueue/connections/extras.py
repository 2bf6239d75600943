"""Libraries that are not installed with DejaQ: loaded when a URL needs one, named when missing.

Room: connections. The one place that knows which extra of DejaQ brings which library.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from dejaqueue.errors import BadRequest


def load(module: str, extra: str, url: str) -> ModuleType:
    """Import a library that comes with an extra.

    Args:
        module: as it is imported.
        extra: of DejaQ, which has it among its requirements.
        url: what needs it; named in the error without what could be secret.

    Raises:
        BadRequest: it is not installed; the text says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        scheme = url.partition(":")[0]
        raise BadRequest(
            f"{scheme} url",
            f"needs the Python package {missing.name}: pip install 'dejaqueue[{extra}]'",
            scheme,
        ) from missing
