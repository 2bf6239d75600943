"""The synchronous client is the asynchronous one, word by word."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from dejaqueue import client
from dejaqueue.client._sync.client import Client
from tests.unit.client.fake_transport import FakeTransport, ok

ROOT = Path(__file__).parents[4]
SCRIPT = ROOT / "scripts" / "generate_sync_client.py"


def test_the_generated_files_are_up_to_date() -> None:
    run = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (client.AsyncClient, client.Client),
        (client.AsyncConsumer, client.Consumer),
        (client.AsyncBatchConsumer, client.BatchConsumer),
        (client.AsyncMessage, client.Message),
        (client.AsyncMessageBatch, client.MessageBatch),
        (client.AsyncProducer, client.Producer),
    ],
)
def test_both_have_the_same_names_and_arguments(one: type, other: type) -> None:
    def public(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert public(one) == public(other)
    assert public(one)


def test_nothing_asynchronous_is_left() -> None:
    modules = sorted((ROOT / "src/dejaqueue/client/_sync").glob("*.py"))
    generated = [path for path in modules if path.name not in ("__init__.py", "waiting.py")]
    assert len(generated) == 11
    for path in generated:
        lines = path.read_text().splitlines()
        code = "\n".join(line for line in lines if "generate_sync" not in line)
        for word in ("async ", "await ", "Async", "asyncio", "aio"):
            assert word not in code, f"{path.name}: {word}"


def test_sending_and_closing() -> None:
    transport = FakeTransport(ok)
    with Client(transport=transport) as sender:
        assert sender.send("t", b"x") == 1000
        assert sender.send_batch("t", [b"x", b"y"]).ids.tolist() == [1000, 1001]
    assert transport.is_closed
    sender.close()
