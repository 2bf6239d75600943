"""Servers that speak SQS's protocol: DejaQ with a key, moto's server, ElasticMQ in memory.

Room: bench. Starts and stops them, and makes the one queue that is measured.
Holds: DejaQ verifies each signature and syncs each message; the others do neither.
See: scripts/install_peers.sh, which installs the others; bench/questions/sqs.py.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.sqs_load import Signer
from bench.systems.servers import Server, is_listening, new_folder, program_version
from dejaqueue.cli.ports import free_port

OUT = Path(__file__).resolve().parents[1] / "out"
QUEUE = "bench"
TIMEOUT_SECONDS = 60
_LISTENING = re.compile(r"http://[\w.]+:(\d+)")


@dataclass(frozen=True, slots=True)
class SqsSystem:
    """A running server and its queue.

    Attributes:
        path: under which it answers.
    """

    server: Server
    port: int
    path: str
    key_id: str
    secret: str
    queue_url: str

    def load(self, **more: Any) -> dict[str, Any]:
        """What bench/sqs_load.py is told."""
        values = {"port": self.port, "path": self.path, "queue_url": self.queue_url}
        return {**values, "key_id": self.key_id, "secret": self.secret, **more}

    def with_new_queue(self, queue: str) -> SqsSystem:
        """The same server with an empty queue; the former one is deleted."""
        key = self.key_id, self.secret
        _ask(self.port, self.path, key, "DeleteQueue", {"QueueUrl": self.queue_url})
        return _with_queue(self.server, self.port, self.path, key, queue)


def _post(port: int, path: str, content: bytes, headers: dict[str, str]) -> Any:
    """The JSON that a call answers."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", content, headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        return json.loads(answer.read() or b"{}")


def _ask(port: int, path: str, key: tuple[str, str], name: str, values: dict[str, Any]) -> Any:
    """What a signed call answers."""
    signer = Signer(f"127.0.0.1:{port}", path, *key)
    head, _, body = signer.request(name, values).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")[1:]
    return _post(port, path, body, dict(line.split(": ", 1) for line in lines))


def _with_queue(
    server: Server, port: int, path: str, key: tuple[str, str], queue: str = QUEUE
) -> SqsSystem:
    made = _ask(port, path, key, "CreateQueue", {"QueueName": queue})
    # Some say another host than the one they were asked at; only the path matters.
    url = f"http://127.0.0.1:{port}{urlsplit(made['QueueUrl']).path}"
    return SqsSystem(server, port, path, *key, url)


def start_dejaq(folder: Path) -> SqsSystem:
    """DejaQ with SQS's API and an API key: signatures are verified."""
    place = new_folder(folder, "dejaq")
    (place / "dejaq.toml").write_text("[sqs]\nenabled = true\n")
    log = place / "server.log"

    def is_ready() -> bool:
        return _LISTENING.search(log.read_text(errors="replace")) is not None

    command = [sys.executable, "-m", "dejaqueue", "serve", "--data", "queue", "--port", "0"]
    server = Server(place, [*command, "--config", "dejaq.toml"], is_ready)
    found = _LISTENING.search(server.log_text())
    assert found is not None
    asked = json.dumps({"name": "bench", "grants": ["admin:*"]}).encode()
    key = _post(int(found[1]), "/v1/keys", asked, {"content-type": "application/json"})
    return _with_queue(server, int(found[1]), "/sqs", (key["id"], key["api_key"]))


def start_moto(folder: Path) -> SqsSystem:
    """moto's server, as its command starts it."""
    place, port = new_folder(folder, "moto"), free_port()
    program = (
        f"import sys; sys.path.insert(0, {str(OUT / 'moto')!r}); "
        "from moto.server import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, "-H", "127.0.0.1", "-p", str(port)]
    server = Server(place, command, lambda: is_listening(port))
    return _with_queue(server, port, "/", ("any", "thing"))


def start_elasticmq(folder: Path) -> SqsSystem:
    """ElasticMQ, which keeps its messages in memory."""
    place, port = new_folder(folder, "elasticmq"), free_port()
    command = [
        "java",
        f"-Drest-sqs.bind-port={port}",
        "-Drest-sqs.bind-hostname=127.0.0.1",
        f"-Dnode-address.port={port}",
        "-Drest-stats.enabled=false",
        "-cp",
        f"{OUT / 'elasticmq'}/*",
        "org.elasticmq.server.Main",
    ]
    server = Server(place, command, lambda: is_listening(port))
    return _with_queue(server, port, "/", ("any", "thing"))


Start = Callable[[Path], SqsSystem]


def available() -> tuple[dict[str, Start], list[str]]:
    """Those that can be measured here, and why others cannot."""
    found: dict[str, Start] = {"dejaq": start_dejaq}
    left_out = []
    if (OUT / "moto" / "moto").is_dir():
        found["moto"] = start_moto
    else:
        left_out.append("moto: it is not installed (scripts/install_peers.sh)")
    if (OUT / "elasticmq").is_dir() and program_version(["java", "-version"]) is not None:
        found["elasticmq"] = start_elasticmq
    else:
        left_out.append("elasticmq: it, or Java, is not installed (scripts/install_peers.sh)")
    return found, left_out


def peer_versions() -> dict[str, str]:
    """Of the servers that DejaQ is compared with."""
    found = {}
    for one in importlib.metadata.distributions(path=[str(OUT / "moto")]):
        if one.metadata["Name"] == "moto":
            found["moto"] = one.version
    for jar in (OUT / "elasticmq").glob("elasticmq-server_*.jar"):
        found["elasticmq"] = jar.stem.rpartition("-")[2]
    return found
