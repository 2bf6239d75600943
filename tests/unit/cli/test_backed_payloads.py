"""`dejaq backup payloads`: what it needs to be told.

Not covered: what it finds (tests/integration/test_backed_payloads.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dejaqueue.backup.archive import Archive
from dejaqueue.cli.backed_payloads import backed_payloads
from dejaqueue.errors import BadRequest


@pytest.mark.parametrize(
    ("settings", "text"),
    [((), "payloads.url: where"), (("--set", "payloads.url=/p"), "url: a place with backups")],
)
def test_it_needs_a_store_and_a_backup(
    tmp_path: Path, settings: tuple[str, ...], text: str
) -> None:
    Archive.open(str(tmp_path), make=True)
    found = CliRunner().invoke(backed_payloads, [str(tmp_path), *settings], standalone_mode=False)
    assert isinstance(found.exception, BadRequest)
    assert text in str(found.exception)
