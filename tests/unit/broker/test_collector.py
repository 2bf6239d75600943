"""Covers: the collector is off meanwhile, and as it was afterwards, also after an error."""

from __future__ import annotations

import gc

import pytest

from dejaqueue.broker.collector import collector_off


def test_it_is_off_and_then_on_again() -> None:
    assert gc.isenabled()
    with collector_off():
        assert not gc.isenabled()
        with collector_off():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="broken"), collector_off():
        raise ValueError("broken")
    assert gc.isenabled()


def test_who_has_none_gets_none() -> None:
    gc.disable()
    try:
        with collector_off():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
