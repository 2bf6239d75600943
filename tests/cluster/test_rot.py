from pathlib import Path

import pytest

from tests.cluster import rot


@pytest.mark.slow
def test_a_rotten_copy_loses_nothing_and_is_named_and_rebuilt(tmp_path: Path) -> None:
    pytest.importorskip("nats")
    # Seed and size for which the damage is one that the server itself says nothing of.
    one = rot.run(tmp_path, seed=2, megabytes=24, look_at_once=True)
    assert one.wrong == 0
    assert one.named == (one.victim,)
    assert one.named_ms < 60_000
    assert one.is_whole
