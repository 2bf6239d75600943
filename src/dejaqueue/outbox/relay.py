"""The relay: takes what was committed to an outbox, and has each row become a message once.

Room: outbox. A batch of rows is an epoch of a query: the broker remembers the last one of each
topic, and an epoch that is committed again adds nothing.
Holds: rows are numbered durably before they are sent, and deleted after their epoch was committed;
what is refused is put aside before that. So a relay may be killed anywhere: the next one sends the
same batch under the same number.
See: tables.py; "In branches" in docs/wire.md; docs/guides/outbox.md.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any

from dejaqueue.client import Client
from dejaqueue.client.branch import Branch, begin
from dejaqueue.client.core import ClientCore
from dejaqueue.client.sending.inputs import batches_of
from dejaqueue.clock import Wake
from dejaqueue.errors import DejaQError
from dejaqueue.model import RowStatus
from dejaqueue.outbox import tables
from dejaqueue.outbox.tables import OpenBatch, Outbox

log = logging.getLogger("dejaqueue.outbox")

HOLD_MS = 15_000
"""A relay that was killed is followed by another one after this."""
BATCH_ROWS, BATCH_MS = 1_000, 300_000


class Relay:
    """Sends what an outbox has. As many as you like: one of them is at work.

    Args:
        client: of the broker.
        outbox: of a database.
        batch_rows: messages that are sent together at most.
    """

    def __init__(self, client: Client, outbox: Outbox, *, batch_rows: int = BATCH_ROWS) -> None:
        self._core: ClientCore = client._core
        self._outbox = outbox
        self._batch_rows = batch_rows
        self._owner = uuid.uuid4().hex
        self._wake, self._stopped = Wake(), False

    def run(self, interval: float = 0.2) -> None:
        """Send until `stop` is called; look for rows so often, in seconds.

        What fails is logged and tried again: a topic that is unknown, a broker or a database that
        cannot be reached.
        """
        while not self._stopped:
            sent = 0
            try:
                sent = self.send()
            except Exception as wrong:  # noqa: BLE001 - of any driver: it is tried again
                log.warning("the outbox waits: %s", wrong)
            if sent == 0:
                clock = self._core.clock
                clock.wait_until(clock.now_us() + int(interval * 1e6), self._wake)
        try:
            self.release()
        except Exception as wrong:  # noqa: BLE001 - of any driver: it is only sooner with it
            log.warning("another relay follows in %d s: %s", HOLD_MS // 1_000, wrong)

    def stop(self) -> None:
        """End `run` after the batch that it is at."""
        self._stopped = True
        self._wake.ring()

    def release(self) -> None:
        """Let another relay follow at once, after the last `send`; `run` does so when it ends."""
        tables.release(self._outbox, self._owner)

    def send(self) -> int:
        """Send what waits, one batch of each topic; how many messages came of it.

        Raises:
            DejaQError: what came of a topic; the others were sent all the same.
        """
        now_ms = self._core.clock.now_ms()
        identity = tables.hold(self._outbox, self._owner, now_ms, now_ms + HOLD_MS)
        if identity is None:
            return 0
        sent, wrong = 0, None
        for batch in tables.take(self._outbox, self._owner, self._batch_rows):
            try:
                sent += self._send(f"outbox/{identity}", batch)
            except DejaQError as failed:
                wrong = failed
        if wrong is not None:
            raise wrong
        return sent

    def _send(self, query: str, batch: OpenBatch) -> int:
        """Have a batch become messages, unless it did before; then forget its rows."""
        core, of = self._core, {"query": query, "epoch": batch.number}
        begun = begin(core, batch.topic, BATCH_MS, **of)
        count = len(batch.ids)
        if not begun.is_committed:
            # The first word is that of all relays: they do not take each other's keys.
            name = f"0.{uuid.uuid4().hex[:16]}"
            branch = Branch(core, batch.topic, f"{begun.name}~{name}")
            refused = self._stage(branch, batch)
            if refused:
                tables.refuse(self._outbox, self._owner, refused)
                count -= len(refused)
                log.warning("%d rows for %s were refused and put aside", len(refused), batch.topic)
            partitions = core.call("describe_topic", {"name": batch.topic})["partitions"]
            body: dict[str, Any] = {
                "topic": batch.topic,
                "participants": [f"{batch.topic}/{number}" for number in range(partitions)],
                "branches": [name],
                "until_ms": begun.until_ms,
            }
            core.call("commit_epoch", body | of)
        tables.drop(self._outbox, self._owner, batch)
        return count

    def _stage(self, branch: Branch, batch: OpenBatch) -> dict[int, str]:
        """Stage the messages of a batch; why rows were refused, by their ids."""
        refused: dict[int, str] = {}
        first = 0
        for messages in batches_of(batch.messages, self._core.now_ms):
            before = len(branch.refused)
            branch.send(messages)
            branch.finish()  # before the next one: what is refused is known by its place here
            for one in branch.refused[before:]:
                for place, code in zip(one.indices.tolist(), one.statuses.tolist(), strict=True):
                    if code != RowStatus.KEPT:
                        refused[batch.ids[first + place]] = RowStatus(code).name
            first += messages.num_rows
        return refused
