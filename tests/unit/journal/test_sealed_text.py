"""Sealed texts. Covered: every changed byte is found, or changes nothing."""

from __future__ import annotations

from pathlib import Path

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.sealed_text import open_text, seal_text


def test_a_sealed_text_is_opened_and_every_byte_counts() -> None:
    sealed = seal_text('{"é": "a"}')
    assert open_text(Path("f"), sealed) == '{"é": "a"}'
    refused = 0
    for at in range(len(sealed)):
        spoilt = bytearray(sealed)
        spoilt[at] ^= 2
        try:
            assert open_text(Path("f"), bytes(spoilt)) == '{"é": "a"}'  # white space
        except JournalDamaged:
            refused += 1
    assert refused > len(sealed) * 0.8
