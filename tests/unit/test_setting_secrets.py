"""Covers: no password and no secret of a URL is shown; what that takes is loaded fast."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dejaqueue.setting_secrets import masked


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("journal.url", "dejaq-data", "dejaq-data"),
        ("journal.url", "postgresql://me:hidden@host/db", "postgresql://me:***@host/db"),
        (
            "journal.url",
            "s3://b/p?access_key=hidden&region=eu",
            "s3://b/p?access_key=***&region=eu",
        ),
        (
            "journal.url",
            "nats://host:4222?system=U:P&replicas=3",
            "nats://host:4222?system=***&replicas=3",
        ),
        ("journal.url", "nats://s3cr3t@host", "nats://***@host"),
        ("journal.url", "postgresql://me@host/db", "postgresql://me@host/db"),
        ("journal.url", "nats://u:p@h1:1,u:q@h2:2", "nats://u:***@h2:2"),
        ("journal.url", "mysql://h/db?a@b=c", "mysql://***"),
        ("log.levels", {"dejaqueue": "info"}, {"dejaqueue": "info"}),
        ("cluster.nodes", "a=host:7470,b=host:7480", "a=host:7470,b=host:7480"),
        ("server.admin_password", "hidden", "***"),
        ("server.admin_password", "", ""),
        ("server.tls_key", "/etc/dejaq/key.pem", "/etc/dejaq/key.pem"),
        ("server.port", 7464, 7464),
    ],
)
def test_passwords_are_masked(name: str, value: object, shown: object) -> None:
    assert masked(name, value) == shown


AWKWARD = ("s3cr3t", "@s3cr3t", "s3@cr3t", "s3/cr3t", "s3?cr3t", "s3#cr3t", "s3 cr3t", "s3:cr3t",
           "s3@cr3t/x", "s3?a=cr3t", "s3%40cr3t", "s3\ncr3t", "s3&cr3t", "s3é/cr3t")  # fmt: skip


@pytest.mark.parametrize("password", AWKWARD)
def test_no_piece_of_a_secret_is_shown_wherever_it_stands_in_a_url(password: str) -> None:
    schemes = ("postgresql", "cockroachdb", "mysql", "redis", "rediss", "nats", "etcd", "cassandra",
               "s3", "sqlite")  # fmt: skip
    for scheme in schemes:
        for url in (
            f"{scheme}://me:{password}@host:1/db",
            f"{scheme}://:{password}@host",
            f"{scheme}://me:{password}@h1,h2/db?replicas=3",
            f"x {scheme}://me:{password}@host/db",
            f"{scheme}://host/db?password={password}",
            f"{scheme}://host/db?sslmode=require&sslpassword={password}",
            f"{scheme}://host/db?sv=2024&sig={password}&se=2030",
            f"{scheme}://host/db?system=U:{password}",
            f"{scheme}://host/db#token={password}",
        ):
            shown = masked("journal.url", url)
            for piece in ("s3@", "s3/", "s3?", "s3#", "s3 ", "s3:", "s3%", "s3&", "s3\n", "cr3t"):
                assert piece not in shown.replace("s3://", ""), (url, shown)


def test_a_coordinator_can_be_opened_without_what_reads_settings() -> None:
    """Others wait for the witness of a broker that died, which has to load all of it first."""
    modules = "dejaqueue.coordinator.etcd, dejaqueue.coordinator.registry"
    code = f"import {modules}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "dejaqueue.coordinator.etcd" in loaded
    assert loaded.isdisjoint({"pydantic", "pydantic_settings", "dejaqueue.settings", "pyarrow"})
