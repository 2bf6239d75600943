"""`dejaq send --file` and `dejaq consume --save`: payloads from a file and into files.

Room: cli. rich is imported only for a bar, which goes to standard error.
Holds: a file that has its name is whole: it is written beside, and renamed when all of it was
compared with what was sent.
See: send.py, messages.py; client/streamed.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from dejaqueue.cli.output import print_json

if TYPE_CHECKING:
    from dejaqueue import Client
    from dejaqueue.client import Message

_DRAFT = ".part"
COPIED_BYTES = 1 << 20


@contextmanager
def progress_bar(title: str, byte_count: int | None) -> Iterator[Callable[[int], None]]:
    """What is to be called with how many bytes more were moved; shows a bar on a terminal.

    Args:
        byte_count: of all of it; None = nobody knows.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(title, total=byte_count)
        yield lambda more: bars.advance(task, more)


@contextmanager
def opened(file: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """A file to read and its length, if that is known; `-` is standard input."""
    if file == "-":
        yield sys.stdin.buffer, None
        return
    with ExitStack() as stack:
        try:
            source = stack.enter_context(Path(file).open("rb"))
        except OSError as error:
            raise click.UsageError(f"--file: cannot read {file}: {error.strerror}") from error
        yield source, os.fstat(source.fileno()).st_size or None


def upload_file(
    client: Client, topic: str, file: str, source: BinaryIO, byte_count: int | None
) -> bytes:
    """Stream a file that was opened; what to send as the payload."""
    with progress_bar(file, byte_count) as advance:
        return client.upload(topic, source, on_progress=advance, once=True)


def save_messages(
    client: Client, topic: str, folder: Path, options: dict[str, Any], *, as_json: bool
) -> None:
    """Save the payload of each message under its id in a folder, print the path, ack it."""
    folder.mkdir(parents=True, exist_ok=True)
    with client.consume(topic, prefetch=1, **options) as messages:
        for message in messages:
            path = folder / str(message.id)
            _save(message, path)
            if as_json:
                values = {"id": str(message.id), "path": str(path), "bytes": message.payload_bytes}
                print_json(values)
            else:
                click.echo(path)
            sys.stdout.flush()
            message.ack()


def _save(message: Message, path: Path) -> None:
    draft = path.with_name(path.name + _DRAFT)
    title = str(message.id)
    with (
        message.open() as payload,
        progress_bar(title, payload.byte_count) as advance,
        draft.open("wb") as target,
    ):
        while piece := payload.read(COPIED_BYTES):
            target.write(piece)
            advance(len(piece))
        target.flush()
        os.fsync(target.fileno())
    draft.replace(path)
