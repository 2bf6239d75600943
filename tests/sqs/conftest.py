"""Real brokers with SQS's API: one without API keys, one with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config

from tests.patience import PATIENCE_SECONDS

SERVE = ("serve", "--data", "kept", "--port", "0", "--json")
CONFIG = Config(
    retries={"max_attempts": 1},
    read_timeout=PATIENCE_SECONDS,
    proxies={},
    ignore_configured_endpoint_urls=True,
)


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """The address of a broker with SQS's API."""
    kept = {name: v for name, v in os.environ.items() if not name.startswith("DEJAQ_")}
    kept |= {"DEJAQ_SQS__ENABLED": "true", "DEJAQ_LOG__LEVEL": "warning"}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "dejaqueue", *SERVE],
        stdout=subprocess.PIPE,
        text=True,
        cwd=directory,
        env=kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["http_url"]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("sqs")) as url:
        yield url


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """A broker with keys; id and text of the first of them."""
    with served(tmp_path_factory.mktemp("sqs-keys")) as url:
        yield url, key_of(url, "root", "admin:*")


def key_of(url: str, name: str, *grants: str, by: dict[str, str] | None = None) -> dict[str, str]:
    """A new key, as SQS's clients have it."""
    headers = {} if by is None else {"authorization": f"Bearer {by['aws_secret_access_key']}"}
    body = {"name": name, "grants": list(grants)}
    made = httpx.post(f"{url}/v1/keys", json=body, headers=headers, trust_env=False)
    assert made.is_success, made.text
    key = made.json()
    return {"aws_access_key_id": key["id"], "aws_secret_access_key": key["api_key"]}


def client(url: str, **key: str) -> Any:
    """boto3's client."""
    key = key or {"aws_access_key_id": "any", "aws_secret_access_key": "thing"}
    return boto3.client(
        "sqs", endpoint_url=f"{url}/sqs", region_name="eu-west-1", config=CONFIG, **key
    )


@pytest.fixture
def sqs(url: str) -> Iterator[Any]:
    found = client(url)
    yield found
    found.close()
