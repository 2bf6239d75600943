"""A search for a planted bug in a process of its own.

Where checksums are believed, lengths that nobody has checked may lead outside the memory: then the
process dies, which nobody overlooks either.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]


def found_apart(module: str, name: str) -> bool:
    """Whether `search(name)` of a module says that the bug was found, or its process died of it."""
    child = subprocess.run(
        [sys.executable, "-c", f"from {module} import search; raise SystemExit(search({name!r}))"],
        cwd=ROOT,
        timeout=PATIENCE_SECONDS,
        check=False,
        capture_output=True,
    )
    assert b"Traceback" not in child.stderr, child.stderr.decode()
    return child.returncode in (True, -signal.SIGSEGV, -signal.SIGBUS)
