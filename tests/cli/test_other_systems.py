"""Covers: on macOS and on Windows, as far as Linux can look like them, the client and the command
work with a broker elsewhere, and a broker is refused in one sentence that says what to do.

Not covered: those systems themselves; there is none here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.other_system import NO_NAMES
from tests.cli.test_serve import Serve
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
REFUSED = (
    "brokers run on Linux only, got: {}; run one in a container (docs/guides/containers.md), and "
    "use it from here by its URL, with dejaqueue.Client or the command dejaq"
)

WARNED = ("-W", "error")


@pytest.mark.parametrize(("system", "name"), [("darwin", "macOS"), ("win32", "Windows")])
def test_a_client_works__and_a_broker_is_refused(system: str, name: str, tmp_path: Path) -> None:
    served = Serve("--data", "memory:", "--port", "0", "--json", cwd=tmp_path)
    try:
        done = subprocess.run(
            [
                sys.executable,
                *WARNED,
                "-m",
                "tests.cli.other_system",
                system,
                served.where()["url"],
            ],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    finally:
        served.end(signal.SIGTERM)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    sentence = REFUSED.format(name)
    assert lines[:3] == ["first True", sentence, sentence]
    assert lines[3].startswith("send 0 ")
    assert lines[-1] == f"serve 3  error: {sentence}"


def test_what_other_systems_lack_is_there_on_linux() -> None:
    """Else a name is misspelt, and nothing is missing."""
    for names in NO_NAMES["win32"]:
        for module, listed in names.items():
            there = dir(__import__(module))
            assert set(listed.split()) <= set(there), module
