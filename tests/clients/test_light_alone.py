"""Covers: the light client works where there is neither Arrow nor numpy nor DejaQ itself, and where
the system is not Linux, as far as a system that is can show it.

What is not there is blocked in a process of its own, so that an import of it fails. `sys.platform`
and `os.name` are others before the first import, and what only Linux has is taken away.

Not covered: a machine with macOS or Windows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.reaper import marks
from tests.integration.access_fixture import Site, running
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "clients" / "python" / "src"
PROGRAM = """
import sys

BLOCKED = {"dejaqueue", "numpy", "pyarrow", "xxhash", "pandas", "polars", "pydantic",
           "pydantic_settings", "click", "cronsim", "orjson", "fastapi", "uvloop"}


class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)


sys.meta_path.insert(0, Block())
url, platform = sys.argv[1:]
if platform != "linux":
    import asyncio, selectors, signal, socket, ssl  # the system's own parts are what they are
    import http.cookiejar, urllib.request, uuid

    sys.platform = platform
    import os

    for name in ("fdatasync", "sched_getaffinity", "eventfd", "register_at_fork"):
        if hasattr(os, name):
            delattr(os, name)

import asyncio
import dejaqueue_client as dejaqueue


def work(message):
    print(message.payload.decode(), message.key, message.attempt)


with dejaqueue.Client(url) as client:
    client.create_topic("t")
    client.send("t", "sync", key="k", delay=0.02)
    client.run("t", work, max_messages=1)


async def main():
    async with dejaqueue.AsyncClient(url) as client:
        await client.send("t", "async")
        async for message in client.consume("t", max_messages=1):
            work(message)
            await message.ack()
        print((await client.stats("t"))["acked"])


asyncio.run(main())
print(sorted(BLOCKED & {name.partition(".")[0] for name in sys.modules}))
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running() as served:
        yield served


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_it_works_with_nothing_but_httpx(site: Site, platform: str) -> None:
    environment = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, site.http_url, platform],
        env=environment | {"PYTHONPATH": str(SOURCES)} | marks(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    site.broker.delete_topic("t")
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == ["sync k 1", "async None 1", "2", "[]"]


def test_nothing_in_it_names_a_system() -> None:
    """What is not there cannot be missing elsewhere: no module asks for a part of one system."""
    found = [
        (path.name, word)
        for path in SOURCES.rglob("*.py")
        for word in ("sys.platform", "fcntl", "os.fork", "eventfd", "/proc", "import resource")
        if word in path.read_text(encoding="utf-8")
    ]
    assert found == []
