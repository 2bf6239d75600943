"""Spoilt batches by the million against a broker: `make fuzz BATCHES=1000000 SEED=1`.

A child process has a broker on a disk, and feeds it what `spoil.py` draws, by the ways that batches
from outside take; its C library fills memory that is freed, and what lies around each message is a
canary. The parent notes a child that dies, and goes on behind the batch that killed it.

Judged: no death, no InternalError, an answer to each batch, no partition that is read again, no
canary in what is stored or read, memory below 1.5 times the largest batch over what it was, and no
thread left behind. `--planted NAME` puts a hole back first, and fails unless that is found.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import logging
import mmap
import os
import queue
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.access.roles import EVERYBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.cli.memory import pool_options
from dejaqueue.client import flight_transport
from dejaqueue.errors import DejaQError, InternalError
from dejaqueue.flight import produce
from dejaqueue.flight.bounds import OpenStream
from dejaqueue.http.routes import sending
from dejaqueue.model import Topic
from dejaqueue.schema import checks
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire import frames
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from dev.reaper import start_reaper
from tests.hostile.arrow_bytes import stream_of
from tests.hostile.spoil import bombs, good, spoilt
from tests.patience import PATIENCE_SECONDS

CANARY = b"C4NARY: the heap"
SLOT_BYTES, SLOTS = 1 << 16, 256
CYCLE = 4_000
"""Batches for one topic: then what was stored is read, and the topic deleted."""
GROWTH_BYTES_MAX = max(limits.BATCH_BYTES_MAX, limits.BODY_BYTES_MAX) * 3 // 2
THREADS_MORE_MAX = 5
POOL_BYTES = 512 << 20
MINUTE = 60.0


# --- holes that can be put back -----------------------------------------------------------------


def _as_it_is(batch: Any) -> Any:
    return batch


def _validation_off() -> None:
    produce.check_arrival = sending.check_arrival = _as_it_is  # type: ignore[attr-defined]


def _validation_not_full() -> None:
    def shallow(batch: pa.RecordBatch) -> pa.RecordBatch:
        batch.validate()
        return batch

    produce.check_arrival = sending.check_arrival = shallow  # type: ignore[attr-defined]


def _dictionaries_not_sized() -> None:
    checks.check_unpacked = sending.check_unpacked = _as_it_is  # type: ignore[attr-defined]


def _packed_bodies_not_sized() -> None:
    sending.unpacked_bytes = lambda content: 0  # type: ignore[attr-defined]


def _clients_believe() -> None:
    flight_transport.is_layout_of_texts = lambda rows: True  # type: ignore[attr-defined]


def _reaches_behind(batch: pa.RecordBatch) -> bool:
    """True if nothing but its payloads' last offset is wrong, which leads a little too far.

    What lies there is handed out: nobody dies of it, and none but the canaries tell.
    """
    place = batch.schema.get_field_index("payload")
    if place < 0 or batch.column(place).type != pa.binary() or batch.column(place).offset:
        return False
    payloads = batch.column(place)
    _, offsets, content = payloads.buffers()
    if content is None or offsets is None or offsets.size < 4 * (len(payloads) + 1):
        return False
    found = np.frombuffer(offsets, dtype="<i4", count=len(payloads) + 1)
    if found[0] < 0 or (np.diff(found) < 0).any() or found[-1] > content.size + SLOT_BYTES:
        return False
    try:
        batch.remove_column(place).validate(full=True)
    except pa.ArrowException:
        return False
    return True


def _copied_unseen(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the payloads that one gets who copies from offset to offset, and looks not."""
    place = batch.schema.get_field_index("payload")
    _, offsets, content = batch.column(place).buffers()
    found = np.frombuffer(offsets, dtype="<i4", count=batch.num_rows + 1).tolist()
    copied = [
        ctypes.string_at(content.address + start, end - start)
        for start, end in itertools.pairwise(found)
    ]
    return batch.set_column(place, "payload", pa.array(copied, pa.binary()))


def _payloads_reach_behind() -> None:
    submit = produce._submit

    def believing(target: Any, stream: WriteStream, number: int, batch: Any, *rest: Any) -> None:
        if _reaches_behind(batch):
            batch = _copied_unseen(batch)
        submit(target, stream, number, batch, *rest)

    produce._submit = believing  # type: ignore[assignment]


def _read_payloads_reach_behind() -> None:
    whole: Any = flight_transport
    checked = whole.is_layout_of_texts

    def believing(batch: pa.RecordBatch) -> bool:
        return _reaches_behind(batch) or checked(batch)

    whole.is_layout_of_texts = believing


PLANTED = {
    "clients_believe": _clients_believe,
    "dictionaries_not_sized": _dictionaries_not_sized,
    "packed_bodies_not_sized": _packed_bodies_not_sized,
    "payloads_reach_behind": _payloads_reach_behind,
    "read_payloads_reach_behind": _read_payloads_reach_behind,
    "validation_not_full": _validation_not_full,
    "validation_off": _validation_off,
}


# --- the child ----------------------------------------------------------------------------------


class _Canaries:
    """Memory in which each message lies between canaries, the one behind it without a gap."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, SLOT_BYTES * (SLOTS + 1))
        self._whole = CANARY * (SLOT_BYTES // len(CANARY))
        for slot in range(SLOTS + 1):
            self._memory[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES] = self._whole
        self._next = 0

    def around(self, content: bytes) -> pa.Buffer:
        """The content, between canaries until so many others were asked for."""
        if len(content) > SLOT_BYTES // 2:
            return pa.py_buffer(content)
        self._next = (self._next + 1) % SLOTS
        first, end = self._next * SLOT_BYTES, (self._next + 1) * SLOT_BYTES
        self._memory[first:end] = self._whole
        start = end - (len(content) + 63) // 64 * 64
        self._memory[start : start + len(content)] = content
        return pa.py_buffer(memoryview(self._memory)[start : start + len(content)])


@dataclass(slots=True)
class _Chunk:
    data: pa.RecordBatch
    app_metadata: None = None


def _opened(content: pa.Buffer) -> pa.ipc.RecordBatchStreamReader:
    """As Flight opens what comes: it unpacks into Arrow's own pool."""
    return pa.ipc.open_stream(content, memory_pool=pa.mimalloc_memory_pool())


class _Reader:
    """What Flight gives to `serve_writer`: it reads by the same code, and looks at nothing."""

    def __init__(self, content: pa.Buffer) -> None:
        self._content = content
        self._stream: pa.ipc.RecordBatchStreamReader | None = None

    @property
    def schema(self) -> pa.Schema:
        self._stream = _opened(self._content)
        return self._stream.schema

    def read_chunk(self) -> _Chunk:
        assert self._stream is not None
        return _Chunk(self._stream.read_next_batch())


class _Writer:
    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def write(self, content: pa.Buffer) -> None:
        reply = frames.decode(memoryview(content))
        assert isinstance(reply, Reply)
        self.replies.append(reply)


class _ReadAgain(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "it is read again" in (text := record.getMessage()) or "broke off" in text:
            self.found.append(text)


class Judged:
    """A broker, and what is wrong with what it did.

    Attributes:
        outcomes: how often batches ended how.
    """

    def __init__(self, directory: Path) -> None:
        settings = BrokerSettings(journal=JournalSettings(url=str(directory / "data")))
        self._directory = directory
        self._broker = Broker(settings)
        self._broker.start()
        self._canaries = _Canaries()
        self._read_again = _ReadAgain()
        logging.getLogger("dejaqueue").addHandler(self._read_again)
        logging.getLogger("dejaqueue").propagate = False
        self._cycle = 0
        self._topic = ""
        self.outcomes: Counter[str] = Counter()
        good(), bombs()
        self.turn()
        self._threads = threading.active_count()
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM from now on
        self._before = _status("VmRSS")

    def turn(self) -> Iterator[str]:
        """Look at what was stored, and begin anew; what was found."""
        found = list(self._stored()) if self._topic else []
        if self._topic:
            self._broker.delete_topic(self._topic)
        self._cycle += 1
        self._topic = f"t{self._cycle}"
        self._broker.create_topic(Topic(self._topic, partitions=2))
        return iter(found)

    def batch(self, seed: int) -> Iterator[str]:
        """Feed one; what is wrong."""
        drawn = spoilt(seed)
        content = self._canaries.around(stream_of(drawn.messages))
        try:
            if drawn.op == "read":
                yield from self._read(content)
                replies = []
            elif drawn.op == "http":
                replies = self._post(content)
            else:
                replies = self._put(drawn.op, content)
        except DejaQError as error:
            replies = [Reply(0, error=error)]
        except (pa.ArrowException, OSError) as error:
            # As `flight.errors.translated` has it: Arrow's errors pass, others are bugs.
            self.outcomes[type(error).__name__] += 1
            if not isinstance(error, pa.ArrowException):
                yield f"{type(error).__name__}: {error}"
            return
        except Exception as bug:  # noqa: BLE001
            yield f"{type(bug).__name__}: {bug}"
            return
        for reply in replies:
            self.outcomes["taken" if reply.error is None else type(reply.error).__name__] += 1
            if isinstance(reply.error, InternalError):
                yield f"InternalError: {reply.error}"
        if drawn.is_bomb and any(reply.error is None for reply in replies):
            yield "a bomb was taken"
        yield from self._judged()

    def _judged(self) -> Iterator[str]:
        while self._read_again.found:
            yield self._read_again.found.pop()
        grown = _status("VmHWM") - self._before
        if grown > GROWTH_BYTES_MAX:
            Path("/proc/self/clear_refs").write_text("5")
            yield f"memory grew by {grown >> 20} MiB"
        if (more := threading.active_count() - self._threads) > THREADS_MORE_MAX:
            yield f"{more} threads more than at first"

    def _put(self, op: str, content: pa.Buffer) -> list[Reply]:
        stream = WriteStream(self._topic, op=op)
        writer = _Writer()
        errors: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

        def serve() -> None:
            try:
                with self._broker.quotas.opening(EVERYBODY, "ipv4:127.0.0.1:1") as opening:
                    target = self._broker.open_write(stream, account=opening.account)
                    reader, here = _Reader(content), OpenStream()
                    produce.serve_writer(target, stream, reader, writer, opening, here)
            except BaseException as error:  # noqa: BLE001
                errors.put(error)
            else:
                errors.put(None)

        threading.Thread(target=serve, daemon=True).start()
        try:
            error = errors.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            raise AssertionError("no answer: the stream stands") from None
        if error is not None and not writer.replies:
            raise error
        return writer.replies

    def _post(self, content: pa.Buffer) -> list[Reply]:
        batch = sending._of_arrow(content)
        answered: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        writer = self._broker.open_write(WriteStream(self._topic))
        writer.check_schema(batch.schema)
        writer.submit(1, batch, answered.put)
        return [answered.get(timeout=PATIENCE_SECONDS)]

    def _read(self, content: pa.Buffer) -> Iterator[str]:
        try:
            batches = list(_opened(content))
        except (pa.ArrowException, OSError) as error:  # the reading thread takes whatever it is
            self.outcomes[type(error).__name__] += 1
            return
        for batch in batches:
            rows = flight_transport._believed(batch)
            for name, column in zip(rows.schema.names, rows.columns, strict=True):
                try:
                    values = column.to_pylist()
                except UnicodeDecodeError:
                    continue  # its row's fault, which who reads rows says
                if CANARY[:6].decode() in repr(values):
                    yield f"a canary was read from column {name}"

    def _stored(self) -> Iterator[str]:
        """What anybody may be handed of the topic."""
        after: dict[str, Any] = {}
        for number in range(2):
            ticket = {"topic": self._topic, "partition": number, "limit": 10_000}
            rows = next(self._broker.read("peek", ticket | after)[1])
            for name, column in zip(rows.schema.names, rows.columns, strict=True):
                try:
                    if CANARY[:6].decode() in repr(column.to_pylist()):
                        yield f"a canary is stored in column {name}"
                except UnicodeDecodeError as wrong:
                    yield f"column {name} cannot be read: {wrong}"
        for path in self._directory.rglob("*"):
            if path.is_file() and CANARY[:6] in path.read_bytes():
                yield f"a canary is in {path.name}"

    def close(self) -> None:
        """End the broker."""
        self._broker.stop()


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text[text.index(name) :].split()[1]) << 10


def run_child(first: int, count: int, planted: str, note: Path) -> None:
    """Feed batches; a line of JSON for each fault and at the end."""
    if planted:
        PLANTED[planted]()
    pa.set_memory_pool(pa.system_memory_pool())  # which fills what is freed
    with note.open("r+b") as file, tempfile.TemporaryDirectory() as directory:
        current = mmap.mmap(file.fileno(), 8)
        judged = Judged(Path(directory))
        for seed in range(first, first + count):
            current[:8] = struct.pack("<q", seed)
            faults = list(judged.batch(seed))
            if seed % CYCLE == CYCLE - 1 or seed == first + count - 1:
                faults += judged.turn()
            for fault in faults:
                print(json.dumps({"seed": seed, "fault": fault[:300]}), flush=True)
        print(json.dumps({"outcomes": judged.outcomes}), flush=True)
        judged.close()


# --- the parent ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """What a run has shown.

    Attributes:
        batches: how many were fed.
        faults: seeds and what was wrong; printed when they are found.
        outcomes: how batches ended.
    """

    batches: int
    faults: list[tuple[int, str]]
    outcomes: Counter[str]
    seconds: float = 0.0

    def add(self, seed: int, fault: str) -> None:
        """One more."""
        self.faults.append((seed, fault))
        print(f"seed {seed}: {fault}", flush=True)


def run(first: int, count: int, planted: str = "", *, faults_max: int = 20) -> Found:
    """Feed so many batches, in as many processes as it takes; stop at `faults_max`."""
    found = Found(0, [], Counter())
    began = time.monotonic()
    seed, end = first, first + count
    while seed < end and len(found.faults) < faults_max:
        seed = _one_child(seed, end, planted, found, faults_max)
    found.batches = seed - first
    found.seconds = time.monotonic() - began
    return found


def _one_child(seed: int, end: int, planted: str, found: Found, faults_max: int) -> int:
    """One process; where the next one begins."""
    environment = os.environ | {"MALLOC_PERTURB_": "165"} | pool_options(POOL_BYTES)
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with tempfile.NamedTemporaryFile() as note:
        note.write(struct.pack("<q", seed))
        note.flush()
        command = [sys.executable, "-m", "tests.hostile.fuzz", "--child", note.name]
        command += ["--seed", str(seed), "--batches", str(end - seed), "--planted", planted]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                said = json.loads(line)
                if "outcomes" in said:
                    found.outcomes.update(said["outcomes"])
                    continue
                found.add(said["seed"], said["fault"])
                if len(found.faults) >= faults_max:
                    child.kill()
                    return int(said["seed"]) + 1
            status = child.wait()
        (last,) = struct.unpack("<q", Path(note.name).read_bytes()[:8])
        if status == 0:
            return end
        found.add(last, f"the process died: {status}")
        return int(last) + 1


def main() -> int:
    """`make fuzz`."""
    start_reaper()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batches", type=int, default=1_000_000)
    parser.add_argument("--planted", default="", choices=["", *PLANTED])
    parser.add_argument("--child", type=Path)
    chosen = parser.parse_args()
    if chosen.child:
        run_child(chosen.seed, chosen.batches, chosen.planted, chosen.child)
        return 0
    found = run(chosen.seed, chosen.batches, chosen.planted, faults_max=1 if chosen.planted else 20)
    print(f"{found.batches} batches, {len(found.faults)} faults, {found.seconds:.0f} s")
    print(", ".join(f"{name} {count}" for name, count in found.outcomes.most_common()))
    if chosen.planted:
        return 0 if found.faults and found.seconds < MINUTE else 1
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
