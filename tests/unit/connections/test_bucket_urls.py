"""Covers: which URLs name a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.connections.bucket_urls import open_bucket
from dejaqueue.errors import BadRequest


def test_a_url_names_a_bucket__or_is_refused(tmp_path: Path) -> None:
    assert open_bucket(str(tmp_path)).url == open_bucket(f"file://{tmp_path}").url
    for url in ("", "ftp://host/x", "file://host/x", "s3:/bucket", "backups:"):
        with pytest.raises(BadRequest, match=r"backup\.url: a path"):
            open_bucket(url)
