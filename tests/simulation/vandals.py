"""Clients that send what nobody may: each row refused, and nobody else the worse for it (rule 15).

They come in behind the door's checks of a batch, and have dice of their own: a world without them
does the same as ever.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from dejaqueue.errors import BadRequest, DejaQError
from dejaqueue.testing.simulation.machine import Machine
from dejaqueue.testing.simulation.world import World
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.checker.fault import Fault
from tests.simulation.scenario import TOPIC

NOT_TEXT = (b"\xff", b"\xc3\x28", b"a\xe2\x82", b"\xed\xa0\x80", b"\x80" * 40)


class Vandal:
    """Sends bad rows, among good ones of its own.

    Attributes:
        faults: what was taken that must not be, or refused as if it were our bug.
    """

    def __init__(self, seed: int, world: World, machine: Machine) -> None:
        self._dice = random.Random(f"vandal {seed}")
        self._world = world
        self._machine = machine
        self._number = 0
        self.stopped = False
        self.faults: list[Fault] = []

    def act(self) -> None:
        """Send something bad, then plan the next."""
        if self.stopped:
            return
        op, columns = self._dice.choice([self._bad_group, self._bad_tags, self._bad_move])()
        self._number += 1
        try:
            writer = self._machine.require().open_write(WriteStream(TOPIC, op).check())
            writer.submit(self._number, pa.record_batch(columns), self._answered)
        except DejaQError as refused:
            self._judge(refused)
        self._world.after(self._dice.randint(1_000, 80_000), self.act)

    def _answered(self, reply: Reply) -> None:
        if reply.error is None:
            self.faults.append(Fault(15, "a row whose text is not UTF-8 was taken"))
        else:
            self._judge(reply.error)

    def _judge(self, refused: DejaQError) -> None:
        if not isinstance(refused, BadRequest) and not refused.retry:
            self.faults.append(Fault(15, f"a bad row was refused with {refused!r}"))

    # --- what it sends ------------------------------------------------------------------------

    def _text(self, rows: int) -> pa.StringArray:
        bad = self._dice.randrange(rows)
        contents = [b"fine" for _ in range(rows)]
        contents[bad] = self._dice.choice(NOT_TEXT)
        return pa.array(contents, pa.binary()).view(pa.utf8())

    def _payloads(self, rows: int) -> dict[str, Any]:
        return {"payload": pa.array([b"vandal"] * rows, pa.binary())}

    def _bad_group(self) -> tuple[str, dict[str, Any]]:
        rows = self._dice.choice([1, 1, 3, 300])
        return "enqueue", self._payloads(rows) | {"group": self._text(rows)}

    def _bad_tags(self) -> tuple[str, dict[str, Any]]:
        rows = self._dice.choice([1, 2])
        offsets = pa.array(range(rows + 1), pa.int32())
        tags = pa.ListArray.from_arrays(offsets, self._text(rows))
        return "enqueue", self._payloads(rows) | {"tags": tags}

    def _bad_move(self) -> tuple[str, dict[str, Any]]:
        ids = pa.array([self._dice.randrange(50)], pa.int64())
        return "move", {"id": ids, "group": self._text(1)}
