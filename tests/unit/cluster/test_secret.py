"""The secret of a cluster: made once for a machine, read from a file, never computable."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.cluster.embedded import keys_beside, secret_of, server_of, warn_if_plain
from dejaqueue.cluster.jetstream_settings import password
from dejaqueue.cluster.secret import FILE, machine_secret, read_secret, state_directory
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.settings import BrokerSettings, ClusterSettings, JournalSettings

NODES = "a=127.0.0.1:7470,b=[::1]:7480,c=localhost:7490"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def settings(url: Path | str, **cluster: Any) -> BrokerSettings:
    return BrokerSettings(
        journal=JournalSettings(url=str(url)), cluster=ClusterSettings(node="a", **cluster)
    )


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_nodes_of_a_machine_find_the_same_secret(tmp_path: Path) -> None:
    first = machine_secret(tmp_path / "a")
    assert len(first) == 64
    assert machine_secret(tmp_path / "elsewhere" / "b") == first
    for path in (tmp_path / "a" / FILE, tmp_path / "state" / "dejaq" / FILE):
        assert mode_of(path) == 0o600
        assert mode_of(path.parent) == 0o700


def test_nodes_that_start_at_once_find_the_same_secret(tmp_path: Path) -> None:
    found: list[str] = []
    begin = threading.Barrier(8)

    def run(number: int) -> None:
        begin.wait()
        found.append(machine_secret(tmp_path / str(number)))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(found) == 8
    assert len(set(found)) == 1
    assert os.listdir(state_directory()) == [FILE], "no draft is left"


def test_each_user_or_machine_has_another_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = machine_secret(tmp_path / "a")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert machine_secret(tmp_path / "b") != first


def test_a_node_keeps_its_secret_and_hands_it_to_those_that_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = machine_secret(tmp_path / "a")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "fresh"))
    assert machine_secret(tmp_path / "a") == first
    assert machine_secret(tmp_path / "d") == first


def test_a_node_with_another_secret_than_the_machines_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = machine_secret(tmp_path / "a")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "fresh"))
    machine_secret(tmp_path / "b")
    assert machine_secret(tmp_path / "a") == first
    assert f"cluster.secret_file={tmp_path / 'a' / FILE}" in caplog.text


def _open_to_others(path: Path) -> None:
    path.write_text("x" * 64)
    path.chmod(0o640)


def _a_link(path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_text("x" * 64)
    elsewhere.chmod(0o600)
    path.symlink_to(elsewhere)


def _empty(path: Path) -> None:
    path.touch(mode=0o600)


@pytest.mark.parametrize("plant", [_open_to_others, _a_link, _empty])
def test_a_secret_that_somebody_may_have_slipped_in_is_refused(
    plant: object, tmp_path: Path
) -> None:
    place = tmp_path / "state" / "dejaq"
    place.mkdir(parents=True)
    plant(place / FILE)  # type: ignore[operator]
    with pytest.raises(Refused, match=r"secret|none can be kept"):
        machine_secret(tmp_path / "a")


def test_a_secret_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine_secret(tmp_path / "a")
    monkeypatch.setattr("dejaqueue.cluster.secret.os.geteuid", lambda: 12_345)
    with pytest.raises(Refused, match="of user"):
        machine_secret(tmp_path / "b")


def test_where_no_secret_can_be_kept_the_command_is_given(tmp_path: Path) -> None:
    (tmp_path / "state").touch()  # a file where a directory should be
    with pytest.raises(Refused, match=r"openssl rand .*--set cluster\.secret_file"):
        machine_secret(tmp_path / "a")


def test_a_node_that_has_its_secret_needs_no_place_for_it(tmp_path: Path) -> None:
    first = machine_secret(tmp_path / "a")
    (tmp_path / "state" / "dejaq" / FILE).unlink()
    (tmp_path / "state" / "dejaq").rmdir()
    (tmp_path / "state" / "dejaq").touch()
    assert machine_secret(tmp_path / "a") == first


@pytest.mark.parametrize("content", ["", "\n", "short", "fifteen letters"])
def test_a_secret_that_is_short_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(content)
    with pytest.raises(BadRequest, match=r"cluster\.secret_file: a file with at least 16"):
        read_secret(str(file))


def test_a_named_file_that_others_may_read_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "secret"
    file.write_text("sixteen letters!\n")
    file.chmod(0o600)
    assert read_secret(str(file)) == "sixteen letters!"
    assert caplog.text == ""
    file.chmod(0o644)
    read_secret(str(file))
    assert f"chmod 600 {file}" in caplog.text


# --- what settings make of it ------------------------------------------------------------------


def test_passwords_of_the_servers_come_from_the_secret_that_was_made(tmp_path: Path) -> None:
    server = server_of(settings(tmp_path / "a", nodes=NODES))
    assert server is not None
    secret = (tmp_path / "a" / FILE).read_text().strip()
    assert password(secret, "dejaq") in server.url
    for guessed in ("", "None", "dejaq"):
        assert password(guessed, "dejaq") not in server.url


@pytest.mark.parametrize(
    "host", ["10.0.0.9", "127.0.0.1.example.org", "127.example", "0.0.0.0", "queue.example"]
)
def test_a_node_that_others_reach_needs_a_named_secret(host: str, tmp_path: Path) -> None:
    far = settings(tmp_path / "a", nodes=f"a=127.0.0.1:7470,b={host}:7480,c=127.0.0.1:7490")
    with pytest.raises(BadRequest, match=rf"openssl rand.*node b at {host}"):
        server_of(far)
    assert not (tmp_path / "a").exists()


def test_a_cluster_on_servers_has_a_secret_if_one_is_named(tmp_path: Path) -> None:
    assert secret_of(settings("memory:", coordinator="memory:x")) == ""
    file = tmp_path / "secret"
    file.write_text("sixteen letters!")
    file.chmod(0o600)
    named = settings("memory:", coordinator="memory:x", secret_file=str(file))
    assert secret_of(named) == "sixteen letters!"


def test_that_keys_are_not_sealed_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    keys_beside(settings("memory:", coordinator="memory:x"), ProcessFacts().open())
    assert "not sealed: see cluster.secret_file" in caplog.text


@pytest.mark.parametrize(
    ("host", "more", "warned"),
    [
        ("127.0.0.1", {}, False),
        ("10.0.0.9", {}, True),
        ("127.0.0.1.example.org", {}, True),
        ("10.0.0.9", {"tls_ca": "/x/ca.pem"}, False),
    ],
)
def test_servers_that_talk_in_plain_text_are_told_of(
    host: str, more: dict[str, str], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_plain(settings("/x", nodes=f"a={host}:7470", **more))
    assert (f"at {host} talk without TLS" in caplog.text) is warned
