"""`dejaq key`, and the options by which every command shows a key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dejaqueue.cli.main import main
from tests.cli.conftest import invoke

Run = Callable[..., Result]


def key_of(found: Result) -> str:
    assert found.exit_code == 0, found.output
    [line] = found.stdout.splitlines()
    assert line.startswith("dq_")
    return line


def test_from_the_first_key_on_commands_need_one(run: Run) -> None:
    refused = run("key", "create", "shop", "--grant", "produce:a")
    assert refused.exit_code == 3
    assert "the first must be able to make others" in refused.stderr
    root = key_of(run("key", "create", "root", "--grant", "admin:*"))
    bare = run("topic", "list")
    assert bare.exit_code == 7
    assert "DEJAQ_API_KEY" in bare.stderr
    assert run("topic", "create", "a", "--api-key", root).exit_code == 0
    shop = key_of(
        run("key", "create", "shop", "--grant", "produce:a", "--for", "90d", "--api-key", root)
    )
    assert run("send", "a", "--text", "x", "--api-key", shop).exit_code == 0
    forbidden = run("peek", "a", "--api-key", shop)
    assert forbidden.exit_code == 7
    assert "no role 'observe' or 'manage' for topic a" in forbidden.stderr
    wrong = run("send", "a", "--text", "x", "--api-key", root[:-1])
    assert wrong.exit_code == 7
    assert root[:-1] not in wrong.output


def test_keys_are_listed_without_secrets_and_revoked(run: Run) -> None:
    root = key_of(run("key", "create", "root", "--grant", "admin:*"))
    made = run(
        "key", "create", "shop", "--grant", "produce:a", "--grant", "consume:b*",
        "--until", "2090-01-01T00:00:00Z", "--json", "--api-key", root,
    )  # fmt: skip
    shop = json.loads(made.stdout)
    listed = run("key", "list", "--api-key", root)
    assert listed.stdout.splitlines()[0].split() == [
        "id",
        "name",
        "grants",
        "created",
        "ends",
        "used",
    ]
    assert "produce:a consume:b*" in listed.stdout
    assert "never" in listed.stdout
    assert shop["api_key"].rpartition("_")[2] not in listed.stdout
    rows = [
        json.loads(line)
        for line in run("key", "list", "--json", "--api-key", root).stdout.splitlines()
    ]
    assert [row["name"] for row in rows] == ["root", "shop"]
    assert run("key", "revoke", "shop", "--api-key", root).exit_code == 0
    assert run("send", "a", "--text", "x", "--api-key", shop["api_key"]).exit_code == 7
    last = run("key", "revoke", "root", "--api-key", root)
    assert last.exit_code == 3
    assert "last admin key" in last.stderr
    assert run("key", "revoke", "root", "--force", "--api-key", root).exit_code == 0
    assert run("key", "list", "--api-key", root).exit_code == 7


def test_a_key_is_taken_from_the_environment(url: str) -> None:
    root = key_of(invoke("key", "create", "root", "--grant", "admin:*", url=url))
    found = CliRunner(env={"DEJAQ_URL": url, "DEJAQ_API_KEY": root}).invoke(main, ["topic", "list"])
    assert found.exit_code == 0
    assert (
        root not in CliRunner(env={"DEJAQ_API_KEY": root}).invoke(main, ["send", "--help"]).output
    )


def test_wrong_options_are_refused(run: Run, url: str, tmp_path: Path) -> None:
    assert run("key", "create", "a").exit_code == 2
    both = run(
        "key", "create", "a", "--grant", "admin:*", "--for", "1d", "--until", "2090-01-01T00:00:00Z"
    )
    assert both.exit_code == 2
    assert run("key", "create", "a", "--grant", "sing:*").exit_code == 2
    assert run("key", "revoke", "nobody").exit_code == 2
    plain = run("topic", "list", "--tls-ca", str(tmp_path / "none.pem"))
    assert plain.exit_code == 2
    assert "dejaqs://" in plain.stderr
    missing = invoke(
        "topic",
        "list",
        "--tls-ca",
        str(tmp_path / "none.pem"),
        url=url.replace("dejaq:", "dejaqs:"),
    )
    assert missing.exit_code == 2
    assert "tls.ca" in missing.stderr


def test_the_first_key_can_be_made_before_the_broker_runs(tmp_path: Path) -> None:
    place = str(tmp_path / "queue")
    assert invoke("key", "create", "shop", "--grant", "produce:a", "--data", place).exit_code == 3
    key_of(invoke("key", "create", "root", "--grant", "admin:*", "--data", place))
    key_of(invoke("key", "create", "shop", "--grant", "produce:a", "--data", place))
    listed = invoke("key", "list", "--json", "--data", place)
    assert [json.loads(line)["name"] for line in listed.stdout.splitlines()] == ["root", "shop"]
    assert invoke("key", "revoke", "shop", "--data", place).exit_code == 0
    assert invoke("key", "revoke", "root", "--data", place).exit_code == 3
    assert invoke("key", "create", "a", "--grant", "admin:*", "--data", "memory:").exit_code == 2


def test_a_broker_in_its_directory_is_not_disturbed(tmp_path: Path) -> None:
    from dejaqueue.broker.broker import Broker
    from dejaqueue.settings import BrokerSettings, JournalSettings

    broker = Broker(BrokerSettings(journal=JournalSettings(url=str(tmp_path))))
    broker.start()
    try:
        found = invoke("key", "create", "root", "--grant", "admin:*", "--data", str(tmp_path))
        assert found.exit_code == 6
    finally:
        broker.stop()


@pytest.mark.parametrize("command", ["send", "topic", "key"])
def test_keys_are_not_in_the_help(command: str) -> None:
    assert "dq_" not in invoke(command, "--help").output
