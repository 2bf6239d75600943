"""Brokers that are made to find damage are not to log each of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("dejaqueue")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)
