"""Covers: what `dejaq doctor` makes of certificates and their keys.

Not covered: everything that may be wrong with such files (tests/unit/access/test_tls.py), how
their end is read (tests/unit/access/test_certificates.py).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from dejaqueue.cli.doctor.tls import check_certificates
from dejaqueue.findings import Finding, Level
from dejaqueue.settings import BrokerSettings, ServerSettings

NOW = datetime(2026, 11, 24, tzinfo=UTC)


def found(settings: ServerSettings) -> list[Finding]:
    return list(check_certificates(BrokerSettings(server=settings), int(NOW.timestamp() * 1_000)))


def settings(folder: Path, end: datetime) -> ServerSettings:
    issued = trustme.CA().issue_cert("localhost", not_before=NOW - timedelta(9), not_after=end)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    issued.private_key_pem.write_to_path(str(key))
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.chmod(0o600)
    return ServerSettings(tls_certificate=str(certificate), tls_key=str(key))


@pytest.mark.parametrize(
    ("left", "level"),
    [
        (timedelta(-1), Level.HURTS),
        (timedelta(6), Level.HURTS),
        (timedelta(29), Level.LOOK),
        (timedelta(31), Level.FINE),
        (timedelta(36_500), Level.FINE),  # from 2050 on a certificate writes its years in full
    ],
)
def test_a_certificate_is_judged_by_what_is_left(
    left: timedelta, level: Level, tmp_path: Path
) -> None:
    [one] = found(settings(tmp_path, NOW + left))
    assert (one.level, f"{NOW + left:%Y-%m-%d}" in one.text) == (level, True)


def test_a_key_that_others_may_read_is_told(tmp_path: Path) -> None:
    served = settings(tmp_path, NOW + timedelta(99))
    Path(served.tls_key).chmod(0o640)
    one = found(served)[-1]
    assert (one.level, one.mend) == (Level.HURTS, f"chmod 600 {served.tls_key}")


def test_what_cannot_be_used_is_told_with_the_name_of_its_setting(tmp_path: Path) -> None:
    served = settings(tmp_path, NOW + timedelta(99))
    Path(served.tls_key).write_text("no key", encoding="utf-8")
    [one] = found(served)
    assert (one.level, "server.tls_key" in one.text) == (Level.HURTS, True)


def test_a_broker_that_is_open_without_tls_hurts__one_of_this_machine_does_not() -> None:
    [one] = found(ServerSettings(host="0.0.0.0"))
    assert (one.level, "open to others" in one.text) == (Level.HURTS, True)
    assert found(ServerSettings()) == []
