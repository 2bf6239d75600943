"""Certificates: their end, to the second, and what is said of it; keys that others may read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from dejaqueue.access.certificates import (
    certificate_end,
    check_end,
    check_key_file,
    check_papers,
)
from dejaqueue.findings import Level
from dejaqueue.settings import BrokerSettings, ClusterSettings, ServerSettings

NOW = datetime(2026, 11, 24, tzinfo=UTC)


def certificate(folder: Path, end: datetime) -> Path:
    issued = trustme.CA().issue_cert("localhost", not_before=NOW - timedelta(9), not_after=end)
    path = folder / "certificate.pem"
    path.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return path


def test_the_end_is_read_to_the_second(tmp_path: Path) -> None:
    for end in (datetime(2049, 12, 31, 23, 59, 58, tzinfo=UTC), datetime(2050, 1, 1, tzinfo=UTC)):
        assert certificate_end(certificate(tmp_path, end).read_text()) == end


@pytest.mark.parametrize(
    ("days", "level"),
    [(-1, Level.HURTS), (6, Level.HURTS), (29, Level.LOOK), (31, Level.FINE)],
)
def test_it_is_judged_by_what_is_left(days: int, level: Level, tmp_path: Path) -> None:
    path = certificate(tmp_path, NOW + timedelta(days))
    assert check_end(str(path), int(NOW.timestamp() * 1_000)).level is level


def test_a_key_for_its_owner_alone_is_no_finding(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("", encoding="utf-8")
    key.chmod(0o640)
    assert [one.mend for one in check_key_file(str(key))] == [f"chmod 600 {key}"]
    key.chmod(0o600)
    assert list(check_key_file(str(key))) == []


def test_each_file_that_the_settings_name_is_looked_at_once(tmp_path: Path) -> None:
    path, key = certificate(tmp_path, NOW + timedelta(100)), tmp_path / "key.pem"
    key.write_text("", encoding="utf-8")
    key.chmod(0o644)
    settings = BrokerSettings(
        server=ServerSettings(tls_certificate=str(path), tls_key=str(key)),
        cluster=ClusterSettings(tls_certificate=str(path), tls_key=str(key)),
    )
    found = list(check_papers(settings, int(NOW.timestamp() * 1_000)))
    assert [(one.check, one.level) for one in found] == [
        ("certificates", Level.FINE),
        ("private key", Level.HURTS),
    ]
    assert list(check_papers(BrokerSettings(), 0)) == []
