"""Consumers that know nothing of clusters: Arrow Flight as it is, and HTTP in two ways.

Each stays with one broker, whoever serves the topic, and begins again there when it is told to.
"""

from __future__ import annotations

import base64
import json
import threading
from abc import ABC, abstractmethod
from contextlib import suppress

import httpx
import numpy as np
import pyarrow as pa
from pyarrow import flight

from dejaqueue.errors import BadRequest
from dejaqueue.wire import frames
from dejaqueue.wire.frames import Close, Credit, DeliveryHead, Settle, SettleOp, StreamError
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS


class Outsider(ABC):
    """A consumer's thread.

    Attributes:
        got: payloads. again: how often it had to begin again. failures: what it cannot live with.
    """

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.broker, self.topic = broker, topic
        self.got: set[bytes] = set()
        self.again = 0
        self.failures: list[str] = []
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                self.take()
            except Exception as error:  # noqa: BLE001 - looked at by the test
                self.failures.append(f"{type(error).__name__}: {error}")
            self.again += 1
            self.stop.wait(0.1)

    @abstractmethod
    def take(self) -> None:
        """Take messages and ack them until there is a reason to begin again."""

    def has_all(self, sent: set[bytes]) -> bool:
        beginning = f"{self.topic}/".encode()
        return self.got >= {one for one in set(sent) if one.startswith(beginning)}

    def end(self) -> None:
        self.stop.set()
        self._thread.join(PATIENCE_SECONDS)


class FlightOutsider(Outsider):
    """DoExchange as docs/wire.md has it, with pyarrow alone."""

    def take(self) -> None:
        client = flight.FlightClient(f"grpc://127.0.0.1:{self.broker.port}")
        command = json.dumps({"topic": self.topic, "lease_ms": 3_000}).encode()
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(command))
        talking, done = threading.Lock(), threading.Event()

        def say(frame: frames.Frame) -> None:
            with talking:
                writer.write_metadata(pa.py_buffer(frames.encode(frame)))

        def stay() -> None:
            while not done.wait(2) and not self.stop.is_set():
                with suppress(pa.ArrowException, OSError):
                    say(frames.Ping(1, 0))
            with suppress(pa.ArrowException, OSError):
                say(Close())

        staying = threading.Thread(target=stay, daemon=True)
        staying.start()
        try:
            say(Credit(500))
            self._read(reader, say)
        except StopIteration:
            pass
        except flight.FlightUnavailableError:
            pass  # it is so, for a moment
        finally:
            done.set()
            staying.join(PATIENCE_SECONDS)
            client.close()

    def _read(self, reader: flight.FlightStreamReader, say) -> None:  # type: ignore[no-untyped-def]
        while True:
            chunk = reader.read_chunk()
            frame = frames.decode(memoryview(chunk.app_metadata))
            if isinstance(frame, DeliveryHead):
                self.got.update(chunk.data["payload"].to_pylist())
                ids = chunk.data["id"].to_numpy()
                attempts = chunk.data["attempts"].to_numpy().astype(np.uint16)
                say(Settle(SettleOp.ACK, ids=ids, attempts=attempts))
                say(Credit(frame.rows))
            elif isinstance(frame, StreamError):
                if isinstance(frame.error, BadRequest):
                    raise frame.error
            elif isinstance(frame, Close):
                return


class HttpLeases(Outsider):
    """Long polls, answered as JSON."""

    kind = "application/json"

    def take(self) -> None:
        url = f"http://127.0.0.1:{self.broker.http_port}/v1/topics/{self.topic}"
        asked = {"max": 200, "wait_ms": 2_000, "lease_ms": 3_000, "encoding": "base64"}
        with httpx.Client(timeout=PATIENCE_SECONDS) as client:
            while not self.stop.is_set():
                answer = client.post(f"{url}/lease", json=asked, headers={"accept": self.kind})
                if answer.status_code == 503:
                    return  # it says when to come again
                answer.raise_for_status()
                self._keep(client, url, self.messages(answer))

    def messages(self, answer: httpx.Response) -> list[dict[str, object]]:
        found: list[dict[str, object]] = answer.json()["messages"]
        return found

    def _keep(self, client: httpx.Client, url: str, found: list[dict[str, object]]) -> None:
        if not found:
            return
        self.got.update(base64.b64decode(str(one["payload_base64"])) for one in found)
        named = [{"id": one["id"], "attempt": one["attempt"]} for one in found]
        client.post(f"{url}/ack", json={"messages": named})


class HttpStream(HttpLeases):
    """Long polls, answered as a message a line."""

    kind = "application/x-ndjson"

    def messages(self, answer: httpx.Response) -> list[dict[str, object]]:
        return [json.loads(line) for line in answer.text.splitlines()]
