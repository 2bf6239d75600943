"""The programs that do with a client what they are told, a JSON object a line.

Each client under clients/ has one, and all of them know the same words: clients/go/conformance,
clients/java's Conformance.
"""

from __future__ import annotations

import json
import queue
import select
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "clients"


class ClientError(Exception):
    """What the client raised.

    Attributes:
        number, name, text, fields, retry: as the client reads them.
    """

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error.get('name')} {error.get('number')}: {error.get('text')}")
        self.number = int(error["number"])
        self.name = str(error["name"])
        self.text = str(error["text"])
        self.fields: dict[str, Any] = error.get("fields") or {}
        self.retry = bool(error.get("retry"))


def command_of(language: str, program: str) -> list[str]:
    """How a client's program is started; skips the test where the client is not built."""
    place = BUILT / language
    if not (place / "stamp").exists():
        pytest.skip(f"the {language} client is not built: scripts/install_clients.sh {language}")
    fresh = [str(ROOT / "scripts/install_clients.sh"), language]
    built = subprocess.run(
        fresh, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    if language == "go":
        return [str(place / program)]
    classes = f"{place / 'classes'}:{place / 'lib'}/*"
    opens = "--add-opens=java.base/java.nio=ALL-UNNAMED"
    name = program[0].upper() + program[1:]
    return [
        "java",
        opens,
        "-XX:TieredStopAtLevel=1",
        "-Xmx256m",
        "-cp",
        classes,
        f"dejaqueue.{name}",
    ]


class Speaker(ABC):
    """Whoever tells a client what to do, a word after the other."""

    _always: dict[str, dict[str, Any]]
    """Fields that a word always has."""

    @abstractmethod
    def _say(self, asked: dict[str, Any]) -> None:
        """Tell it."""

    @abstractmethod
    def _hear(self) -> dict[str, Any]:
        """What it answers next."""

    def begin(self, do: str, **fields: Any) -> None:
        """Tell it what to do, and do not wait."""
        self._say({"do": do} | self._always.get(do, {}) | fields)

    def answer(self) -> dict[str, Any]:
        """What it answers to what it was told. Raises ClientError."""
        answer = self._hear()
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer

    def call(self, do: str, **fields: Any) -> dict[str, Any]:
        """Tell it what to do; what it answers. Raises ClientError."""
        self.begin(do, **fields)
        return self.answer()

    def send(self, topic: str, *payloads: bytes, do: str = "send", **fields: Any) -> dict[str, Any]:
        """Send messages that have the same fields."""
        rows = [{"payload": b64encode(payload).decode()} | fields for payload in payloads]
        return self.call(do, topic=topic, rows=rows)

    def receive(self, count: int, wait_ms: int = 20_000) -> list[dict[str, Any]]:
        """Messages, as many as come."""
        rows = self.call("receive", count=count, wait_ms=wait_ms)["rows"]
        return [row | {"payload": b64decode(row["payload"])} for row in rows]


class _Process:
    """A client's program: lines in, lines out."""

    def __init__(self, language: str, log: Path) -> None:
        self._log_path = log
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            command_of(language, "conformance"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._read = b""

    def write(self, asked: dict[str, Any]) -> None:
        """Tell it something."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()

    def read(self) -> dict[str, Any] | None:
        """The next line that it answers with; None = it ended, or says nothing for long."""
        assert self._process.stdout is not None
        until = time.monotonic() + PATIENCE_SECONDS
        while b"\n" not in self._read:
            left = until - time.monotonic()
            ready, _, _ = select.select([self._process.stdout], [], [], max(left, 0))
            read = self._process.stdout.read1(1 << 20) if ready else b""  # type: ignore[attr-defined]
            if not read:
                return None
            self._read += read
        line, _, self._read = self._read.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def last_words(self) -> str:
        """The end of what it logged."""
        return self._log_path.read_text()[-2000:]

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(10)
        except (subprocess.TimeoutExpired, OSError):
            self._process.kill()
            self._process.wait(10)

    def close(self) -> None:
        """Let go of it, when it has ended."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


class Driver(Speaker):
    """A client in a process of its own.

    Args:
        flight_only: have it take no lane, where it would.
    """

    def __init__(self, language: str, log: Path, *, flight_only: bool = False) -> None:
        self._always = {"connect": {"flight_only": True}} if flight_only else {}
        self._process = _Process(language, log)

    def _say(self, asked: dict[str, Any]) -> None:
        self._process.write(asked)

    def _hear(self) -> dict[str, Any]:
        answer = self._process.read()
        assert answer is not None, f"no answer, or it has ended: {self._process.last_words}"
        return answer

    def end(self) -> None:
        """End the process."""
        self._process.end()
        self._process.close()


class Drivers:
    """Many clients of one language in one process, which work at the same time."""

    def __init__(self, language: str, log: Path) -> None:
        self._process = _Process(language, log)
        self._mutex = threading.Lock()
        self._answers: dict[str, queue.SimpleQueue[dict[str, Any]]] = {}
        self._thread = threading.Thread(target=self._deal, daemon=True)
        self._thread.start()

    def make(self, **connect: Any) -> OneOfMany:
        """Another client.

        Args:
            connect: fields that its `connect` always has.
        """
        with self._mutex:
            name = f"c{len(self._answers)}"
            answers = self._answers[name] = queue.SimpleQueue()
        return OneOfMany(self, name, answers, connect)

    def say(self, asked: dict[str, Any]) -> None:
        """Tell one of them something."""
        with self._mutex:
            self._process.write(asked)

    @property
    def last_words(self) -> str:
        """The end of what the process logged."""
        return self._process.last_words

    def _deal(self) -> None:
        while self._process.is_running:
            answer = self._process.read()
            if answer is not None:
                self._answers[answer["of"]].put(answer)

    def end(self) -> None:
        """End the process, and all of them."""
        self._process.end()
        self._thread.join()
        self._process.close()


class OneOfMany(Speaker):
    """One of `Drivers`."""

    def __init__(
        self,
        all_of_them: Drivers,
        name: str,
        answers: queue.SimpleQueue[dict[str, Any]],
        connect: dict[str, Any],
    ) -> None:
        self._all, self._name, self._answers = all_of_them, name, answers
        self._always = {"connect": connect}

    def _say(self, asked: dict[str, Any]) -> None:
        self._all.say(asked | {"of": self._name})

    def _hear(self) -> dict[str, Any]:
        try:
            return self._answers.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            raise AssertionError(f"no answer in time: {self._all.last_words}") from None

    def end(self) -> None:
        """Nothing: it ends with the others."""
