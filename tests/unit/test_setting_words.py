"""Settings in words: ranges, masks, and the example file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from dejaqueue.configuration import look
from dejaqueue.setting_words import example, masked
from dejaqueue.settings import BrokerSettings, known_settings


def test_the_example_shows_every_setting_and_is_all_defaults() -> None:
    text = example()
    assert all(not values for values in tomllib.loads(text).values())
    for group, name, field in known_settings():
        assert f"#{name} = " in text.partition(f"[{group}]\n")[2]
        assert str(field.description).split(" ")[0] in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_example_with_every_setting_taken_in_is_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "all.toml"
    file.write_text(re.sub(r"^#(\w+ = )", r"\1", example(), flags=re.MULTILINE))
    loaded, problems = look(file, environment=False)
    assert problems == []
    assert loaded is not None
    assert loaded.settings == BrokerSettings()
    assert len(loaded.sources) == len(list(known_settings()))


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
