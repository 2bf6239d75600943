"""Covers: an ownership as it is in the bucket."""

from __future__ import annotations

import pytest

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.records.bucket.ownership import Ownership


def test_an_ownership_comes_back__or_is_refused() -> None:
    ownership = Ownership(3, "id", "life", 17)
    content = ownership.encode()
    assert Ownership.decode(3, "here", content) == ownership
    with pytest.raises(JournalDamaged, match="here"):
        Ownership.decode(3, "here", content.replace(b"17", b"18"))
