"""What `run` needs beside a consumer: its options, and what is said of a message that failed.

Room: client. Values only; nothing here waits.
Holds: a reason fits the wire's limit, with the error first and the innermost calls after it; it
names files by their last part, as a dead letter is read by others than who wrote the program.
See: _aio/consumer.py, `run`; docs/guides/workers.md.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import PurePath
from typing import TypedDict

from dejaqueue import limits
from dejaqueue.errors import BadRequest

CONCURRENCY_MAX = 4_096
"""Handlers of one consumer at the same time, at most."""
PREFETCH_MIN = 16


class WorkOptions(TypedDict, total=False):
    """What `Client.run` passes on to `consume`."""

    subscription: str
    prefetch: int
    lease_ms: int
    auto_extend: bool
    until_settled: bool
    name: str
    idle_ms: int | None
    max_messages: int | None
    tags_any: Sequence[str]
    tags_all: Sequence[str]
    tags_none: Sequence[str]


def check_concurrency(concurrency: object) -> int:
    """Return it, or raise BadRequest if so many cannot work at the same time."""
    is_whole = isinstance(concurrency, int) and not isinstance(concurrency, bool)
    if not is_whole or not 1 <= concurrency <= CONCURRENCY_MAX:  # type: ignore[operator]
        raise BadRequest("concurrency", f"a whole number from 1 to {CONCURRENCY_MAX}", concurrency)
    return int(concurrency)  # type: ignore[call-overload, no-any-return]


def prefetch_of(concurrency: int) -> int:
    """Messages that a consumer holds ahead for so many at work: a few, so that others that
    consume the topic are not left without, while this one is busy with each for long."""
    return max(4 * concurrency, PREFETCH_MIN)


def story_of(error: BaseException) -> str:
    """Why a message failed: the error, and where it was raised, innermost call first."""
    lines = [summary_of(error)]
    byte_count = len(lines[0].encode(errors="replace"))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        line = f"  {PurePath(frame.filename).name}:{frame.lineno} in {frame.name}"
        byte_count += 1 + len(line.encode(errors="replace"))
        if byte_count > limits.REASON_BYTES_MAX:
            break
        lines.append(line)
    return "\n".join(lines)


def summary_of(error: BaseException) -> str:
    """The error on one line: its class and its text."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
