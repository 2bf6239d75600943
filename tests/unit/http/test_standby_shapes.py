"""The descriptions of a standby take what the broker answers."""

from __future__ import annotations

from dejaqueue.http.standby_shapes import PromotionShown, StandbyShown


def test_what_is_answered_fits() -> None:
    assert StandbyShown(state="active").behind_ms == 0
    assert StandbyShown.model_validate({"state": "following", "entries": 3}).trouble == ""
    assert PromotionShown(state="active", as_of_ms=1, took_ms=2).took_ms == 2
