"""A real `dejaq serve`, and DOQ beside it.

`DOQ_URL` names a DOQ that runs already; without it, what its documentation says stands for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.doq import documented
from tests.doq.calls import Call, Side
from tests.patience import PATIENCE_SECONDS

SERVE = ("serve", "--data", "kept", "--port", "0", "--json")


@contextmanager
def serve(folder: Path, *options: str) -> Iterator[dict[str, Any]]:
    """A real `dejaq serve`: where it listens."""
    kept = {name: v for name, v in os.environ.items() if not name.startswith("DEJAQ_")}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "dejaqueue", *SERVE, *options],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    yield json.loads(process.stdout.readline())
    process.terminate()
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0


@pytest.fixture(scope="session")
def our_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(tmp_path_factory.mktemp("doq")) as where:
        yield where["http_url"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Where a broker with DOQ's gRPC API listens."""
    with serve(tmp_path_factory.mktemp("doq"), "--set", "doq.enabled=true") as where:
        yield where


@pytest.fixture(scope="session")
def their_url() -> Iterator[str]:
    if os.environ.get("DOQ_URL"):
        yield os.environ["DOQ_URL"]
        return
    with documented.serve() as url:
        yield url


def emptied(url: str) -> Iterator[Side]:
    """A server, without the queues of the test before."""
    side = Side(url)
    try:
        for queue in side.call(Call("GET", "/API/v1/queues"))[1]["queues"]:
            side.call(Call("DELETE", f"/API/v1/queues/{queue['name']}"))
        yield side
    finally:
        side.close()


@pytest.fixture
def ours(our_url: str) -> Iterator[Side]:
    yield from emptied(our_url)


@pytest.fixture
def theirs(their_url: str) -> Iterator[Side]:
    yield from emptied(their_url)
