"""The commands of tests/cli: a broker in this process, and `dejaq` run against it."""

from __future__ import annotations

from tests.cli.conftest import run, url

__all__ = ["run", "url"]
