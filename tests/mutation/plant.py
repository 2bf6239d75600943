"""A pytest plugin that plants the bug named by DEJAQ_MUTANT for as long as the tests run."""

from __future__ import annotations

import os

import pytest

from tests.mutation.mutants import MUTANTS


def pytest_configure(config: pytest.Config) -> None:
    """Plant it."""
    planted, _ = MUTANTS[os.environ["DEJAQ_MUTANT"]]
    planted(pytest.MonkeyPatch())
