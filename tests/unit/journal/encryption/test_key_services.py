"""Covers: master keys that a key service keeps; what each way of failing is called.

KMS is moto's server. Vault is a server of this file that gives the answers of its documentation: a
real one is asked in tests/integration/test_vault.py, where one is installed.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dejaqueue.errors import BadRequest, EncryptionKeyMissing, Unavailable
from dejaqueue.journal.encryption.data_keys import DataKeys
from dejaqueue.journal.encryption.key_services import KmsKey, VaultKey
from dejaqueue.journal.encryption.master_keys import LocalMasterKey, load_master_keys
from tests.object_store import S3Server, s3_server
from tests.unit.journal.encryption.test_data_keys import Shelf

DATA_KEY = bytes(range(48))


@pytest.fixture(scope="module")
def aws() -> Iterator[S3Server]:
    yield from s3_server()


def kms(aws: S3Server) -> Any:
    import boto3

    return boto3.client("kms", region_name="us-east-1", endpoint_url=aws.endpoint)


def new_kms_key(aws: S3Server) -> str:
    return str(kms(aws).create_key()["KeyMetadata"]["Arn"])


def test_a_key_of_kms_wraps__and_is_called_by_what_an_alias_stands_for(aws: S3Server) -> None:
    arn = new_kms_key(aws)
    kms(aws).create_alias(AliasName="alias/dejaq", TargetKeyId=arn)
    (key,) = load_master_keys("aws-kms:alias/dejaq")
    assert key.name == f"aws-kms:{arn}"
    wrapped = key.wrap(DATA_KEY)
    assert DATA_KEY not in wrapped
    assert key.unwrap(wrapped) == KmsKey(arn).unwrap(wrapped) == DATA_KEY


def test_kms_unwraps_only_what_a_broker_has_wrapped_with_this_key(aws: S3Server) -> None:
    key, other = KmsKey(new_kms_key(aws)), KmsKey(new_kms_key(aws))
    wrapped = key.wrap(DATA_KEY)
    with pytest.raises(EncryptionKeyMissing, match="InvalidCiphertext"):
        key.unwrap(wrapped[:-1] + bytes([wrapped[-1] ^ 1]))
    with pytest.raises(EncryptionKeyMissing):
        other.unwrap(wrapped)
    strange = kms(aws).encrypt(KeyId=key.name.removeprefix("aws-kms:"), Plaintext=DATA_KEY)
    with pytest.raises(EncryptionKeyMissing):  # another program's, with the same key
        key.unwrap(strange["CiphertextBlob"])


def test_a_key_that_kms_does_not_have__and_a_server_that_is_not_there(
    aws: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EncryptionKeyMissing, match="alias/nothing"):
        KmsKey("alias/nothing")
    with pytest.raises(BadRequest):
        load_master_keys("aws-kms:")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="out of reach"):
        KmsKey("alias/dejaq")


def test_from_a_file_to_a_key_service_and_back__by_two_sources(
    aws: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER", base64.b64encode(b"1" * 32).decode())
    arn, shelf = new_kms_key(aws), Shelf()
    sealed = DataKeys(shelf, load_master_keys("env:MASTER"), is_new=True).cipher("log")
    text = sealed.seal(b"x", b"")
    both = load_master_keys(f"aws-kms:{arn}, env:MASTER")
    assert [type(key) for key in both] == [KmsKey, LocalMasterKey]
    DataKeys(shelf, both, is_new=False)
    alone = DataKeys(shelf, load_master_keys(f"aws-kms:{arn}"), is_new=False)
    assert alone.cipher("log").open(text, b"") == b"x"
    with pytest.raises(EncryptionKeyMissing, match=arn):
        DataKeys(shelf, load_master_keys("env:MASTER"), is_new=False)


class Vault(BaseHTTPRequestHandler):
    """Answers of the transit engine: `ciphertext` is a count of what it was given."""

    stored: dict[str, dict[str, str]]
    statuses: dict[str, int]

    def do_GET(self) -> None:
        self._answer("read", {"data": {"type": "aes256-gcm96"}})

    def do_PUT(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "/encrypt/" in self.path:
            cipher = f"vault:v1:{len(self.stored)}"
            self.stored[cipher] = given
            self._answer("encrypt", {"data": {"ciphertext": cipher}})
            return
        known = self.stored.get(given["ciphertext"])
        if known is None or known["associated_data"] != given["associated_data"]:
            self._answer("decrypt", {"errors": ["cipher: message authentication failed"]}, 400)
            return
        self._answer("decrypt", {"data": {"plaintext": known["plaintext"]}})

    def _answer(self, call: str, content: dict[str, Any], status: int = 200) -> None:
        status = self.statuses.get(call, status)
        text = json.dumps(content if status < 300 else {"errors": [f"status {status}"]}).encode()
        is_known = self.path.endswith("/dejaq") and self.headers["X-Vault-Token"] == "token"
        self.send_response(status if is_known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """What a server says to each call, where it is not the usual."""
    answers: dict[str, int] = {}
    handler = type("Handler", (Vault,), {"stored": {}, "statuses": answers})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    monkeypatch.setenv("VAULT_ADDR", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("VAULT_TOKEN", "token")
    yield answers
    server.shutdown()
    server.server_close()


def test_a_key_of_vault_wraps__and_finds_what_it_did_not_wrap(statuses: dict[str, int]) -> None:
    (key,) = load_master_keys("vault:a/mount/dejaq")
    assert key.name == "vault:a/mount/dejaq"
    assert key.unwrap(key.wrap(DATA_KEY)) == DATA_KEY
    with pytest.raises(EncryptionKeyMissing, match="Vault refuses"):
        key.unwrap(b"vault:v1:9")
    statuses["read"] = 403  # a token that may encrypt and decrypt, and read nothing
    assert VaultKey("a/mount/dejaq").unwrap(key.wrap(DATA_KEY)) == DATA_KEY


@pytest.mark.parametrize(("status", "error"), [(403, EncryptionKeyMissing), (503, Unavailable)])
def test_what_vault_refuses_is_told_from_what_it_cannot_do_now(
    statuses: dict[str, int], status: int, error: type[Exception]
) -> None:
    key = VaultKey("transit/dejaq")
    wrapped = key.wrap(DATA_KEY)
    statuses["decrypt"] = statuses["encrypt"] = status
    with pytest.raises(error, match="vault:transit/dejaq"):
        key.wrap(DATA_KEY)
    with pytest.raises(error, match="vault:transit/dejaq"):
        key.unwrap(wrapped)


def test_a_key_that_vault_does_not_have__and_a_server_that_is_not_there(
    statuses: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EncryptionKeyMissing):
        VaultKey("transit/another")
    with pytest.raises(BadRequest):
        VaultKey("no-mount")
    monkeypatch.setenv("VAULT_ADDR", "http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="out of reach"):
        VaultKey("transit/dejaq")


def test_a_broker_that_meets_a_sealed_vault_says_that_it_may_be_tried_again(
    statuses: dict[str, int],
) -> None:
    shelf = Shelf()
    keys = load_master_keys("vault:transit/dejaq")
    DataKeys(shelf, keys, is_new=True)
    statuses["decrypt"] = 503
    with pytest.raises(Unavailable):
        DataKeys(shelf, keys, is_new=False)
