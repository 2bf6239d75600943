"""A connection to servers that are none: it answers as a test says, and notes what was asked."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from dejaqueue.connections.nats.answers import ApiRefusal, Reply
from dejaqueue.connections.nats.url import read_url
from dejaqueue.journal.records.nats.reading import NUMBER, SEQUENCE, SUM, checksum

STREAM = "dejaq-records-t-0"
NOT_FOUND = ApiRefusal("no message found", 404, 10037)


def record(
    number: int, content: bytes = b"content", *, stored: bytes | None = None, sequence: int = 0
) -> Reply:
    """A record as a copy gives it; altered if what was `stored` was another content.

    Args:
        sequence: of the stream; 0 = its number.
    """
    headers = {SEQUENCE: str(sequence or number), NUMBER: str(number)}
    headers[SUM] = checksum(content if stored is None else stored, number)
    return Reply("subject", content, headers)


def ends(status: int = 204) -> Reply:
    """The end of a window, or why there is none."""
    return Reply("subject", b"", {"Status": str(status)})


def _asked_for(copy: dict[int, Reply], asked: dict[str, Any]) -> Reply | None:
    if "next_by_subj" not in asked:
        return copy.get(asked["seq"])
    return copy.get(min((one for one in copy if one >= asked["seq"]), default=0))


class Played:
    """Servers of which each has a copy of one stream.

    Attributes:
        copies: what direct reads answer, in turn: each reads one copy, which maps sequences to
            replies.
        leader: the copy of the leader.
        state: first and last number, as the leader says.
        api_answers: what an API's call answers, by its name without the stream: a dictionary, an
            error, or several in a list, in turn.
    """

    url = read_url("nats://127.0.0.1:1")

    def __init__(self, *copies: dict[int, Reply]) -> None:
        self.copies = list(copies)
        self.leader = copies[0] if copies else {}
        self.state: tuple[int, int] = (1, max(self.leader, default=0))
        self.api_answers: dict[str, Any] = {}
        self.asked: list[tuple[str, Any]] = []
        self.windows: list[list[Reply]] = []
        self.take: Callable[[Any], Awaitable[None]] | None = None
        self.ended_listening = 0
        self._reads = 0

    def _copy(self) -> dict[int, Reply]:
        found = self.copies[self._reads % len(self.copies)]
        self._reads += 1
        return found

    # --- direct reads

    def request(self, subject: str, content: bytes) -> Reply:
        asked = json.loads(content)
        self.asked.append((subject, asked))
        return _asked_for(self._copy(), asked) or ends(404)

    def replies(self, subject: str, content: bytes) -> Iterator[Reply]:
        asked = json.loads(content)
        self.asked.append((subject, asked))
        copy = self._copy()
        numbers = sorted(number for number in copy if number >= asked["seq"])[: asked["batch"]]
        yield from (copy[number] for number in numbers)
        yield ends()

    # --- the API

    def look_up(self, name: str, asked: Any = None) -> dict[str, Any]:
        return self.api(name, asked)

    def api(self, name: str, asked: Any = None, timeout_s: float = 1) -> dict[str, Any]:
        self.asked.append((name, asked))
        call = name.partition(f".{STREAM}")[0]
        if call in self.api_answers:
            answer = self.api_answers[call]
            if isinstance(answer, list):
                answer = answer.pop(0) if len(answer) > 1 else answer[0]
            if isinstance(answer, Exception):
                raise answer
            found: dict[str, Any] = answer
            return found
        if call == "STREAM.INFO":
            first, last = self.state
            return {"state": {"first_seq": first, "last_seq": last}, "config": {}}
        if call == "STREAM.MSG.GET":
            reply = _asked_for(self.leader, asked)
            if reply is None:
                raise NOT_FOUND
            lines = ["NATS/1.0", *(f"{name}: {value}" for name, value in reply.headers.items())]
            return {
                "message": {
                    "seq": int(reply.headers[SEQUENCE]),
                    "subject": reply.subject,
                    "data": base64.b64encode(reply.content).decode(),
                    "hdrs": base64.b64encode("\r\n".join(lines).encode()).decode(),
                }
            }
        return {}

    def calls(self, beginning: str) -> int:
        """How many calls were made whose names begin so."""
        return sum(name.startswith(beginning) for name, _ in self.asked)

    # --- readers

    def listen(self, take: Callable[[Any], Awaitable[None]]) -> tuple[str, Callable[[], None]]:
        self.take = take

        def end() -> None:
            self.ended_listening += 1

        return "inbox", end

    def ask(self, subject: str, content: bytes, inbox: str) -> None:
        """The next window of a reader arrives."""
        self.asked.append((subject, json.loads(content)))
        for reply in self.windows.pop(0) if self.windows else []:
            assert self.take is not None
            waiting = self.take(_Message(reply))
            try:
                waiting.send(None)  # type: ignore[attr-defined]
            except StopIteration:
                continue


class _Message:
    def __init__(self, reply: Reply) -> None:
        self.subject = reply.subject
        self.data = reply.content  # tidy: allow name, because NATS calls it so
        self.headers, self.reply = reply.headers, reply.answer_to
