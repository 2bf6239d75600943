"""Every planted bug still fits into the place that it was written for.

Covered: all plants of the simulations, none of which is run here. That each is found:
test_simulation.py and its neighbours, and `make mutants`.
"""

from __future__ import annotations

import pytest

from tests.simulation.find_mutants import GARDENS
from tests.simulation.planted import Misfit, Planting


@pytest.mark.parametrize("kind", GARDENS)
# tidy: allow no-assert, because a plant that does not fit raises Misfit
def test_each_plant_fits(kind: str) -> None:
    for name in GARDENS[kind].mutants:
        with pytest.MonkeyPatch.context() as patch:
            GARDENS[kind].plant(name, patch)


class _Place:
    def settle(self, rows: int, *, commit: bool) -> int:
        return rows


def test_a_plant_that_takes_other_arguments_is_refused() -> None:
    with pytest.MonkeyPatch.context() as inner:
        patch = Planting(inner)
        with pytest.raises(Misfit, match="settle"):
            patch.setattr(_Place, "settle", lambda self, rows: rows)
        with pytest.raises(AttributeError):
            patch.setattr(_Place, "forget", lambda self: None)
        patch.setattr(_Place, "settle", lambda self, *rest, **named: 0)
        assert _Place().settle(1, commit=True) == 0
