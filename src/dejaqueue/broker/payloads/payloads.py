"""Payloads: the payload store of a broker, and the threads that ask it.

Names in the store, of which nothing but the broker's own is ever deleted:

    <store of journals>/<number>-<topic, or shard>/<random>      a payload
    <store of journals>/<number>-<topic, or shard>/<random>/…    parts of one that is streamed
    <store of journals>/<number>-<topic>/once-<when, ms>-<random>/…  the same, as it was uploaded
    <store of journals>/<number>-<topic, or shard>/cold-<random> payloads of many messages
    <store of journals>/ended/<when, ms>/<the same two>          it is kept for backups until later
    <store of journals>/uploads/<random>/…                       one that no message has yet

Room: broker. Any thread.
Holds: at most THREADS ask the store at once; what waits to be stored is bounded in bytes.
See: payloads/payload_store.py; streamed.py; setting_groups.py, PayloadSettings.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa

from dejaqueue.clock import Clock
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    InternalError,
    JournalDamaged,
    ResourceExhausted,
    Unavailable,
)
from dejaqueue.journal.interface import JournalStore
from dejaqueue.payloads.payload_store import (
    KEY_BYTES,
    PayloadStore,
    open_payload_store,
    slice_of,
)
from dejaqueue.payloads.streamed_store import copy_parts, keep_parts
from dejaqueue.payloads.voucher_seal import VoucherSeal
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema.references import Reference, marked_rows
from dejaqueue.settings import BrokerSettings

Answer = TypeVar("Answer")

DOCUMENT: Final = "payloads"
FORMER: Final = "former"
"""Of the document: ids of brokers whose payloads are this one's now."""
UPLOADS: Final = "uploads"
UPLOAD_MS: Final = 6 * 3_600_000
"""A streamed payload can be sent in messages for so long, or gets its next part."""
_ONCE: Final = "once-"
NO_STORE: Final = "this broker has no payload store (payloads.url)"
THREADS: Final = 16
AHEAD: Final = 2
"""Parts that are read while one is sent."""
WAITING_BYTES_MAX: Final = 256 << 20
"""Of payloads that wait to be stored; what goes beyond is refused."""
DOOMED_MAX: Final = 1_000_000
"""Names that wait to be deleted; those beyond are found by the collector later."""
STALE_MS: Final = 60_000
"""A payload is deleted so long after its message is done: a consumer whose lease has ended may be
reading it still, and one that takes messages at most once begins only then."""
STOPPING: Final = Unavailable("the broker is stopping", 1_000)


class EndedPayload(NamedTuple):
    """A payload that nothing needs any more."""

    ended_ms: int
    name: str


class PayloadCounts:
    """What the payload store was asked; numbers only grow.

    Attributes:
        stored, fetched, deleted: payloads.
        stored_bytes, fetched_bytes: of those.
        failed: of the calls those that found the store away.
        damaged: payloads that were missing or not what was stored, each time.
        cold_stored: cold payloads that left the journal, and
        cold_returned: those that came back to it.
        cold_late: deliveries of messages whose payload was not back by then.
    """

    def __init__(self) -> None:
        self.stored = self.fetched = self.deleted = 0
        self.stored_bytes = self.fetched_bytes = 0
        self.failed = self.damaged = 0
        self.cold_stored = self.cold_returned = self.cold_late = 0


class Payloads:
    """The payload store of a broker.

    Args:
        executor: of THREADS threads that ask the store.

    Attributes:
        store: None = the broker has none.
        id: what tells this broker's payloads, or its cluster's, from others' in the same bucket.
        ids: that one, and those of brokers whose place this one took as a standby.
        seal: makes vouchers, which all brokers of a cluster know; None = there is no store.
        doomed: what is to be deleted, in the order in which it ended.
        on_doomed: called when there is something to delete, and was nothing; must not block.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock, executor: Executor) -> None:
        self.settings, self.clock = settings, clock
        self.store: PayloadStore | None = None
        self.id, self.ids = "", tuple[str, ...]()
        self.counts = PayloadCounts()
        self.doomed: deque[EndedPayload] = deque()
        self.on_doomed: Callable[[], None] = lambda: None
        self.seal: VoucherSeal | None = None
        self._executor = executor
        self._is_sealed = False
        self._guard = threading.Lock()
        self._waiting_bytes = self._keepers = 0

    def open(self, journals: JournalStore) -> None:
        """Use the store of the settings, if they have one; asks nothing of it yet.

        Raises:
            BadRequest: the URL is none. JournalDamaged, Unavailable.
        """
        if not self.settings.payloads.url:
            return
        store = open_payload_store(self.settings.payloads.url, self.clock.now_us)

        def drawn(text: str | None) -> str | None:
            values = json.loads(text or "{}")
            if "secret" in values:
                return None
            new = {"id": os.urandom(8).hex(), "secret": os.urandom(32).hex()}
            return json.dumps(new | values)

        journals.change_document(DOCUMENT, drawn)
        values = json.loads(journals.load_document(DOCUMENT) or "{}")
        self.id = str(values["id"])
        self.ids = (self.id, *map(str, values.get(FORMER, ())))
        self.seal = VoucherSeal(bytes.fromhex(values["secret"]))
        self._is_sealed = journals.encryption is not None
        self.store = store

    def close(self) -> None:
        """Ask nothing any more; what is being asked is waited for."""
        self._executor.shutdown(cancel_futures=True)

    @property
    def inline_bytes_max(self) -> int:
        """Payloads of more bytes go to the store; -1 = none does."""
        return -1 if self.store is None else self.settings.payloads.inline_bytes_max

    def check(self, cold_after_ms: object) -> None:
        """Raise BadRequest if a topic wants payloads in a store that is not there."""
        if cold_after_ms and not self.settings.payloads.url:
            raise BadRequest("topic.cold_after_ms", "0 without `payloads.url`", cold_after_ms)

    def takes(self, batch: pa.RecordBatch) -> bool:
        """Whether a payload of a batch to send goes to the store, or is there already."""
        place = -1 if self.store is None else batch.schema.get_field_index("payload")
        if place < 0:
            return False
        column = batch.column(place)
        if marked_rows(column).size:
            return True
        if batch.nbytes <= self.inline_bytes_max:
            return False
        return bool(pc.max(pc.binary_length(column)).as_py() > self.inline_bytes_max)

    def new_name(self, owner: str, prefix: str = "") -> str:
        """A name that no payload has.

        Args:
            owner: number and name of the topic, or shard, that is served.
        """
        return f"{self.id}/{owner}/{prefix}{os.urandom(16).hex()}"

    def new_upload(self, owner: str = "") -> str:
        """A name for parts that no message has yet, with its slash.

        Args:
            owner: as for `new_name`, whose one message it is for; "" = for any.
        """
        drawn = f"{os.urandom(16).hex()}/"
        if not owner:
            return f"{self.id}/{UPLOADS}/{drawn}"
        return f"{self.id}/{owner}/{_ONCE}{self.clock.utc_ms():x}-{drawn}"

    def may_keep(self, name: str, owner: str) -> bool:
        """Whether the first message that an upload is sent in may have its parts as they are."""
        head = f"{self.id}/{owner}/{_ONCE}"
        if not name.startswith(head):
            return False
        # One that is as old as what the collector takes for an orphan may be going already.
        begun_ms = int(name.removeprefix(head).partition("-")[0], 16)
        return self.clock.utc_ms() - begun_ms < UPLOAD_MS

    def is_own(self, name: str) -> bool:
        """Whether a payload is of these journals: others' are never deleted."""
        return name.partition("/")[0] in self.ids

    def is_upload(self, name: str) -> bool:
        """Whether it is a payload that was streamed here and that no message has."""
        owner = name.split("/", 2)[:2]
        return owner[0] in self.ids and owner[1:] == [UPLOADS]

    def new_key(self) -> bytes:
        """A key for a payload; b"" = it is not encrypted."""
        return os.urandom(KEY_BYTES) if self._is_sealed else b""

    @property
    def are_direct(self) -> bool:
        """Whether streamed payloads may go past the broker."""
        signs = self.store is not None and self.store.signs
        return signs and not self._is_sealed and self.settings.payloads.direct

    def needed(self) -> PayloadStore:
        """The store. Raises Unavailable: there is none."""
        if self.store is None:
            raise Unavailable(NO_STORE, 1_000)
        return self.store

    # --- storing ------------------------------------------------------------------------------

    def hold(self, byte_count: int) -> None:
        """Payloads begin to wait. Raises ResourceExhausted: too many do."""
        with self._guard:
            waiting = self._waiting_bytes
            if waiting and waiting + byte_count > WAITING_BYTES_MAX:
                raise ResourceExhausted(
                    f"{waiting} bytes of payloads wait for the payload store; retry when they are "
                    "stored",
                    100,
                )
            self._waiting_bytes += byte_count

    def let_go(self, byte_count: int) -> None:
        """They wait no longer."""
        with self._guard:
            self._waiting_bytes -= byte_count

    def _put(self, name: str, payload: bytes | memoryview, key: bytes) -> Reference:
        store = self.needed()
        try:
            reference = store.put(name, payload, key)
        except DejaQError:
            self.count(failed=1)
            raise
        self.count(stored=1, stored_bytes=len(payload))
        return reference

    def put_beside(self, owner: str, payload: bytes) -> Future[Reference]:
        """Store a payload, on another thread. Raises Unavailable: the broker stops.

        Args:
            owner: as for `new_name`.
        """
        return self.beside(self._put, self.new_name(owner), payload, self.new_key())

    def copied(self, references: Sequence[Reference], owner: str) -> list[Reference]:
        """The same payloads once more, for the messages of another topic; waits for all of them.

        A copy that is made again has the name and the content that it had: whoever was interrupted
        does it again. What is missing, or is another payload, stays what it is: a reference to it.

        Raises:
            Unavailable, ResourceExhausted.
        """
        try:
            futures = [self.beside(self._copy, reference, owner) for reference in references]
            return [future.result() for future in futures]
        except CancelledError:
            raise STOPPING from None

    def _copy(self, reference: Reference, owner: str) -> Reference:
        within = f"\0{reference.offset}" if reference.is_cold else ""
        words = f"{owner}\0{reference.name}{within}".encode()
        name = f"{self.id}/{owner}/{hashlib.sha256(words).hexdigest()[:32]}"
        try:
            if reference.is_streamed:
                return self.copy_streamed(reference, name)
            payload = self.get(reference)
        except JournalDamaged:
            return reference
        key = hmac.digest(reference.key, words, hashlib.sha256) if reference.key else b""
        return self._put(name, payload, key)

    def copy_streamed(self, reference: Reference, name: str) -> Reference:
        """The same streamed payload under another name, on this thread.

        It is copied in the store, and its parts keep their key.

        Args:
            name: without its slash.

        Raises:
            JournalDamaged: it is not there as a whole. Unavailable, ResourceExhausted.
        """
        try:
            copy = copy_parts(self.needed(), reference, f"{name}/")
        except DejaQError as error:
            self.count_failure(error)
            raise
        self.count(stored=1, stored_bytes=reference.byte_count)
        return copy

    def keep_streamed(self, reference: Reference) -> bool:
        """Have a message keep the parts of an upload as they are, on this thread; False = another
        one may have them, or the store cannot tell. Raises as `copy_streamed`."""
        try:
            kept = keep_parts(self.needed(), reference)
        except DejaQError as error:
            self.count_failure(error)
            raise
        self.count(stored=int(kept), stored_bytes=reference.byte_count * kept)
        return kept

    # --- reading ------------------------------------------------------------------------------

    def get(self, reference: Reference) -> bytes:
        """A payload, on this thread. Raises JournalDamaged, Unavailable."""
        if self.store is None:
            raise Unavailable(f"payload {reference.name}: {NO_STORE}", 1_000)
        try:
            payload = self.store.get(reference)
        except DejaQError as error:
            self.count_failure(error)
            raise
        self.count(fetched=1, fetched_bytes=len(payload))
        return payload

    def get_all(self, references: Sequence[Reference]) -> list[bytes | DejaQError]:
        """Payloads, or why one could not be read; waits for all of them. An object that several of
        them are in is asked for once."""
        objects = list({one.whole for one in references})
        found = dict(zip(objects, self._objects(objects), strict=True))
        return [_part_of(one, found[one.whole]) for one in references]

    def _objects(self, references: Sequence[Reference]) -> list[bytes | DejaQError]:
        if len(references) == 1 or self.store is None:
            return [self._outcome(reference) for reference in references]
        try:
            futures = [self.beside(self._outcome, reference) for reference in references]
            return [future.result() for future in futures]
        except (CancelledError, Unavailable):
            return [STOPPING] * len(references)

    def _outcome(self, reference: Reference) -> bytes | DejaQError:
        try:
            return self.get(reference)
        except DejaQError as error:
            return error
        except Exception as wrong:  # noqa: BLE001 - our bug, and others' payloads beside it
            return InternalError(f"payload {reference.name}: {type(wrong).__name__}: {wrong}")

    # --- deleting -----------------------------------------------------------------------------

    def doom(self, names: Sequence[str]) -> None:
        """Payloads that nothing needs any more, but maybe a backup. Does not wait."""
        now_ms, was_empty = self.clock.utc_ms(), not self.doomed
        for name in names:
            if self.is_own(name) and len(self.doomed) < DOOMED_MAX:
                self.doomed.append(EndedPayload(now_ms, name))
        if was_empty and self.doomed:
            self.on_doomed()

    @contextmanager
    def kept(self, wanted: bool = True) -> Iterator[None]:
        """Nothing is deleted meanwhile by this broker's collector: a backup copies payloads."""
        with self._guard:
            self._keepers += wanted
        try:
            yield
        finally:
            with self._guard:
                self._keepers -= wanted

    @property
    def is_kept(self) -> bool:
        """Whether payloads of messages that are done stay for now."""
        return self._keepers > 0

    def deleted(self, count: int) -> None:
        """Note that payloads were deleted."""
        self.count(deleted=count)

    def beside(self, call: Callable[..., Answer], *values: object) -> Future[Answer]:
        """Ask the store on another thread. Raises Unavailable: the broker stops."""
        try:
            return self._executor.submit(call, *values)
        except RuntimeError:  # it was shut down
            raise STOPPING from None

    def each_waited(
        self, call: Callable[..., Answer], asked: Sequence[tuple[object, ...]]
    ) -> Iterator[Answer]:
        """What the store says to each, in their order; AHEAD of the next ones are asked meanwhile.
        Raises as `waited`."""
        begun: deque[Future[Answer]] = deque()
        for place in range(len(asked)):
            while len(begun) <= AHEAD and place + len(begun) < len(asked):
                begun.append(self.beside(call, *asked[place + len(begun)]))
            yield self._result(begun.popleft())

    def waited(self, call: Callable[..., Answer], *values: object) -> Answer:
        """What the store says, asked on another thread. Raises what the call does; Unavailable."""
        return self._result(self.beside(call, *values))

    def _result(self, asked: Future[Answer]) -> Answer:
        try:
            return asked.result()
        except CancelledError:
            raise STOPPING from None
        except DejaQError as error:
            self.count_failure(error)
            raise

    def count_failure(self, error: DejaQError) -> None:
        """Count what the store could not do."""
        is_away = isinstance(error, Unavailable | ResourceExhausted)
        self.count(failed=int(is_away), damaged=int(isinstance(error, JournalDamaged)))

    def count(self, **more: int) -> None:
        """Count what was done; names are those of PayloadCounts."""
        counts = self.counts
        with self._guard:
            for name, by in more.items():
                setattr(counts, name, getattr(counts, name) + by)


def _part_of(reference: Reference, content: bytes | DejaQError) -> bytes | DejaQError:
    """A payload of what its object has."""
    if isinstance(content, DejaQError) or not reference.is_cold:
        return content
    try:
        return slice_of(reference, content)
    except JournalDamaged as damage:
        return damage
