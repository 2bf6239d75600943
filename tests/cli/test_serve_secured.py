"""`dejaq serve` with keys and TLS, as a process: from the first key to the last line of its log."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import trustme
from click.testing import CliRunner, Result

from dejaqueue import Client, Tls
from dejaqueue.cli.main import main
from tests.cli.conftest import invoke
from tests.cli.test_serve import Start, start
from tests.patience import PATIENCE_SECONDS

__all__ = ["start"]


@pytest.fixture
def papers(tmp_path: Path) -> dict[str, str]:
    """Settings of a broker with a certificate, and the client's variable."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    names = {"ca": "ca.pem", "certificate": "broker.pem", "key": "broker.key"}
    files = {name: str(tmp_path / file) for name, file in names.items()}
    authority.cert_pem.write_to_path(files["ca"])
    for blob in issued.cert_chain_pems:
        blob.write_to_path(files["certificate"], append=True)
    issued.private_key_pem.write_to_path(files["key"])
    return files


def server_settings(papers: dict[str, str]) -> dict[str, str]:
    return {
        "DEJAQ_SERVER__TLS_CERTIFICATE": papers["certificate"],
        "DEJAQ_SERVER__TLS_KEY": papers["key"],
    }


def test_no_secret_is_in_anything_that_a_secured_run_says(
    start: Start, papers: dict[str, str], tmp_path: Path
) -> None:
    place = str(tmp_path / "queue")
    root = invoke("key", "create", "root", "--grant", "admin:*", "--data", place).stdout.strip()
    serve = start("--data", place, "--port", "0", "--json", **server_settings(papers))
    where = serve.where()
    assert where["url"].startswith("dejaqs://")
    assert where["http_url"].startswith("https://")
    said = []

    def run(key: str, *arguments: str) -> Result:
        shown = {"DEJAQ_URL": where["url"], "DEJAQ_API_KEY": key, "DEJAQ_TLS_CA": papers["ca"]}
        found = CliRunner(env=shown).invoke(main, arguments)
        said.append(found.stderr)
        return found

    made = run(root, "key", "create", "shop", "--grant", "produce:orders", "--json")
    shop = json.loads(made.stdout)["api_key"]
    wrong = shop[:-1] + ("0" if shop[-1] != "0" else "1")
    assert run(root, "topic", "create", "orders").exit_code == 0
    for key, status in ((shop, 0), (wrong, 7), (root, 0)):
        found = run(key, "send", "orders", "--text", "hello")
        assert found.exit_code == status
        said.append(found.stdout)
    said += [run(shop, "peek", "orders").output, run(root, "key", "list", "--json").stdout]
    said += [run(root, "stats", "--json").stdout, run(root, "key", "revoke", "shop").stdout]
    assert run(shop, "send", "orders", "--text", "x").exit_code == 7
    with httpx.Client(
        verify=ssl.create_default_context(cafile=papers["ca"]), timeout=PATIENCE_SECONDS
    ) as web:
        for key in (root, shop, wrong):
            for path in ("/stats", "/metrics", "/v1/keys", "/v1/topics", f"/v1/topics/{key}"):
                url, headers = where["http_url"] + path, {"Authorization": f"Bearer {key}"}
                answer = web.get(url, headers=headers)
                if key not in path:  # an answer may name what was asked for
                    said.append(answer.text)
    status, log = serve.end(signal.SIGTERM)
    assert status == 0
    assert 'action="create_key"' in log or "stopping" in log
    everything = "\n".join([*said, log])
    for key in (root, shop, wrong):
        assert key.rpartition("_")[2] not in everything
    assert "PRIVATE KEY" not in everything
    for file in Path(place).rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert root.rpartition("_")[2].encode() not in content
        assert shop.rpartition("_")[2].encode() not in content
    assert (Path(place) / "keys.json").stat().st_mode & 0o777 == 0o600


def test_a_broker_that_is_open_to_others_says_so(
    start: Start, papers: dict[str, str], tmp_path: Path
) -> None:
    bare = start("--data", "memory:", "--host", "0.0.0.0", "--port", "0")
    bare.line()
    said = bare.end(signal.SIGTERM)[1]
    assert "there is no API key" in said
    assert "without TLS" in said
    near = start("--data", "memory:", "--port", "0")
    near.line()
    assert "open to others" not in near.end(signal.SIGTERM)[1]
    place = str(tmp_path / "queue")
    invoke("key", "create", "root", "--grant", "admin:*", "--data", place)
    whole = start("--data", place, "--host", "0.0.0.0", "--port", "0", **server_settings(papers))
    whole.line()
    assert "open to others" not in whole.end(signal.SIGTERM)[1]


def test_the_first_key_of_a_broker_that_others_reach_takes_its_token(
    start: Start, tmp_path: Path
) -> None:
    place = tmp_path / "queue"
    serve = start("--data", str(place), "--host", "0.0.0.0", "--port", "0", "--json")
    url = serve.where()["url"].replace("0.0.0.0", "127.0.0.1")
    file = place / "start-token"
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text().strip()
    make = ("key", "create", "root", "--grant", "admin:*", "--url", url)
    for wrong in ((), ("--start-token", "0" * 64)):
        refused = CliRunner().invoke(main, [*make, *wrong])
        assert refused.exit_code == 7
        assert "start-up token" in refused.stderr
    made = CliRunner(env={"DEJAQ_START_TOKEN": token}).invoke(main, [*make])
    assert made.exit_code == 0, made.output
    assert not file.exists()
    status, said = serve.end(signal.SIGTERM)
    assert status == 0
    assert str(file) in said
    assert token not in said
    in_memory = start("--data", "memory:", "--host", "0.0.0.0", "--port", "0")
    in_memory.line()
    said = in_memory.end(signal.SIGTERM)[1]
    [path] = re.findall(r"start-up token in (\S+?)[\s\"]", said)
    assert "dejaq-start-token-" in path
    assert not Path(path).exists()


def test_a_wrong_pair_is_refused_at_start(start: Start, papers: dict[str, str]) -> None:
    settings = server_settings(papers)
    for changes, named in (
        ({"DEJAQ_SERVER__TLS_KEY": papers["ca"]}, "server.tls_key"),
        ({"DEJAQ_SERVER__TLS_CERTIFICATE": "/nowhere"}, "server.tls_certificate"),
        ({"DEJAQ_SERVER__TLS_KEY": ""}, "tls_certificate and tls_key belong together"),
        ({"DEJAQ_SERVER__TLS_CLIENT_CA": "/nowhere"}, "server.tls_client_ca"),
    ):
        status, said = start("--data", "memory:", "--port", "0", **(settings | changes)).end()
        assert status == 2
        assert named in said


def test_the_environment_of_clients_is_no_setting_of_the_broker(start: Start) -> None:
    line = start(
        "--data", "memory:", "--port", "0", DEJAQ_API_KEY="dq_1_2", DEJAQ_TLS_CA="x"
    ).line()
    assert line.startswith("listening")


def shown_name(where: dict[str, str], door: str, ca: str) -> str:
    """The common name that a new connection to a port is shown."""
    place = urlsplit(where[door])
    context = ssl.create_default_context(cafile=ca)
    with (
        socket.create_connection(("127.0.0.1", place.port or 0), 20) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        shown = secured.getpeercert()
    assert shown is not None
    parts: Any = shown["subject"]  # pairs in pairs, which the stubs do not know
    subject: dict[str, str] = dict(pair for part in parts for pair in part)
    return subject["commonName"]


@pytest.mark.parametrize("how", ["SIGHUP", "by itself"])
def test_files_that_changed_are_taken_up_while_a_stream_is_open(
    start: Start, tmp_path: Path, how: str
) -> None:
    authority = trustme.CA()
    ca, pair = str(tmp_path / "ca.pem"), (tmp_path / "b.pem", tmp_path / "b.key")
    authority.cert_pem.write_to_path(ca)

    def put(name: str) -> None:
        issued = authority.issue_cert("localhost", "127.0.0.1", common_name=name)
        pair[0].write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        pair[1].write_bytes(issued.private_key_pem.bytes())

    put("first")
    files = {"certificate": str(pair[0]), "key": str(pair[1])}
    often = {} if how == "SIGHUP" else {"DEJAQ_SERVER__TLS_CHECK_MS": "50"}
    serve = start("--data", "memory:", "--port", "0", "--json", **server_settings(files), **often)
    where = serve.where()
    doors = ("url", "http_url")
    assert [shown_name(where, door, ca) for door in doors] == ["first", "first"]
    with Client(where["url"], tls=Tls(ca=ca)) as client:
        client.create_topic("t")
        taken = iter(client.consume("t", idle_ms=60_000))
        client.send("t", b"1")
        assert next(taken).payload == b"1"
        put("second")
        if how == "SIGHUP":
            serve.process.send_signal(signal.SIGHUP)
        while "taken up anew" not in serve.log_line()["message"]:
            pass
        assert [shown_name(where, door, ca) for door in doors] == ["second", "second"]
        client.send("t", b"2")
        assert next(taken).payload == b"2"
        pair[1].write_text("no key")
        serve.process.send_signal(signal.SIGHUP)
        while "stay in use" not in (said := serve.log_line())["message"]:
            pass
        assert "server.tls_key" in said["message"]
        assert [shown_name(where, door, ca) for door in doors] == ["second", "second"]
        taken.close()
    assert serve.end(signal.SIGTERM)[0] == 0
    assert "PRIVATE KEY" not in said
