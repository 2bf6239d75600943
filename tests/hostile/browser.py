"""Headless Chromium for tests: started with a profile of its own, ended by its process group."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import PATIENCE_SECONDS

NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--autoplay-policy=no-user-gesture-required",
)


def program() -> str | None:
    """Where it is; None = it is not installed."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def _command(flags: tuple[str, ...], profile: Path, url: str) -> list[str]:
    found = program()
    assert found is not None
    return [found, *_FLAGS, f"--user-data-dir={profile}", *flags, url]


@contextmanager
def showing(url: str, profile: Path, *flags: str) -> Iterator[None]:
    """A browser that shows a page for as long as the block takes.

    Args:
        profile: a directory that is made for it, and removed.
    """
    # A port of its own for a debugger keeps the headless browser from ending once it has loaded.
    command = _command((*flags, "--remote-debugging-port=0"), profile, url)
    log = profile.with_suffix(".log")
    with log.open("wb") as said:
        started = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        shutil.rmtree(profile, ignore_errors=True)


def shown(url: str, profile: Path, *flags: str) -> str:
    """The document of a page after its scripts have run."""
    command = _command((*flags, "--virtual-time-budget=5000", "--dump-dom"), profile, url)
    try:
        found = subprocess.run(command, capture_output=True, timeout=PATIENCE_SECONDS, check=True)
    finally:
        shutil.rmtree(profile, ignore_errors=True)
    return found.stdout.decode()
