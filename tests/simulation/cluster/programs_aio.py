"""Programs of a simulated cluster that use the asynchronous client, each in a loop of its own.

See programs.py for what they note; what is not awaited anywhere there is used from there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from dejaqueue.client import AsyncClient
from dejaqueue.errors import DejaQError, DuplicateKey, Refused
from dejaqueue.testing.simulation.threads import Gone
from tests.checker.history import Cancel, Decide, Move, Outcome, Send, Settle
from tests.simulation.cluster.client_fibers import FiberLoop
from tests.simulation.cluster.programs import LEASE_MS, SECOND, Sender, Taker


class _Looping:
    """What both have in common: a loop, in which the work is one coroutine."""

    process: Any
    client: Any
    name: str
    town: Any
    world: Any

    def _open(self) -> None:
        """The client is made in the loop."""

    def work(self) -> None:
        """Run the loop until the work is done."""
        loop = FiberLoop(self.process)
        try:
            loop.run_until_complete(self._work_all())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            _end_tasks(loop)
            loop.close()

    async def _work_all(self) -> None:
        retry_ms = self.world.random.choice([5_000, 30_000])
        async with AsyncClient(self.town.url, name=self.name, retry_ms_max=retry_ms) as client:
            self.client = client
            await self.act()
        self.client = _Closed()

    async def act(self) -> None:
        """What it does."""
        raise NotImplementedError

    async def rest(self, longest_us: int) -> None:
        """Do nothing for a while."""
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        loop.call_later(self.world.between(1_000, longest_us) / 1e6, over.set_result, None)
        await over


def _end_tasks(loop: FiberLoop) -> None:
    """End what a killed program was about to do, here and now.

    Else Python ends it when it happens to find it as garbage, in the midst of something else, and
    warns that the blocks that it leaves have no loop any more.
    """
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is meant
        with suppress(RuntimeError, DejaQError, Gone):
            task.get_coro().close()


class _Closed:
    def close(self) -> None:
        """It was closed in its loop."""


class AsyncSender(_Looping, Sender):
    """Sends, many at once, moves and cancels."""

    async def act(self) -> None:
        ways = [self._some, self._many, self._produce, self._alter]
        while not self.town.stopped:
            try:
                await self.world.random.choice(ways)()
            except DejaQError as error:
                assert self.is_fine(error), f"{self.name}: {error!r}"
            await self.rest(300_000)

    async def _send(self) -> None:
        [send], [row] = self._new(1)
        try:
            self._sent(send, await self.client.send(self.town.topic, row.pop("payload"), **row))
        except (DuplicateKey, Refused):
            self._refused(send)
        except DejaQError as error:
            assert self.is_fine(error), f"{self.name}: {error!r}"

    async def _some(self) -> None:
        count = self.world.between(1, 12)
        await asyncio.gather(*(self._send() for _ in range(count)))

    async def _many(self) -> None:
        sends, rows = self._new(self.world.between(1, 40))
        self._note(sends, await self.client.send_batch(self.town.topic, rows))

    async def _produce(self) -> None:
        sent = []
        async with self.client.producer(self.town.topic, batch_rows=5, window=2) as producer:
            for _ in range(self.world.between(1, 20)):
                [send], [row] = self._new(1)
                sent.append((send, await producer.send(row.pop("payload"), **row)))
        for send, future in sent:
            try:
                self._sent(send, await future)
            except (DuplicateKey, Refused):
                self._refused(send)
            except DejaQError as error:
                assert self.is_fine(error), f"{self.name}: {error!r}"

    async def _alter(self) -> None:
        known = self.town.known.get(self.town.topic, [])
        if not known:
            return
        now_us, one = self.world.now_us, self.world.random.choice(known)
        note: Any
        if self.world.chance(0.6):
            due_ms = now_us // 1_000 + self.world.between(-100, 4_000)
            note = Move(now_us, id=one, due_ms=due_ms)
            self.history.moves.append(note)
            status = await self.client.move(self.town.topic, id=one, due=due_ms)
        else:
            note = Cancel(now_us, id=one)
            self.history.cancels.append(note)
            status = await self.client.cancel(self.town.topic, id=one)
        note.answer(self.world.now_us, Outcome.REFUSED if status else Outcome.OK, self.broker_us)


class AsyncTaker(_Looping, Taker):
    """Consumes one by one, works on several at once, and some of it in transactions."""

    async def act(self) -> None:
        random = self.world.random
        while not (self.town.stopped and self._is_drained):
            named = {
                "prefetch": random.choice([1, 10, 300]),
                "lease_ms": random.choice(LEASE_MS),
                "auto_extend": self.world.chance(0.7),
                "idle_ms": random.choice([200, 2_000, 10_000]),
                "name": self.name,
            }
            try:
                if self.world.chance(0.3):
                    await self._take_batches(named)
                else:
                    await self._take_each(named)
            except DejaQError as error:
                assert self.is_fine(error), f"{self.name}: {error!r}"
            await self.rest(200_000)

    async def _take_batches(self, named: dict[str, Any]) -> None:
        consumer = self.client.consume_batches(self.topic, batch_rows=8, **named)
        async with consumer as batches:
            async for batch in batches:
                pairs = zip(batch.ids.tolist(), batch.attempts.tolist(), strict=True)
                notes = self._noted("ack", [self._handed(*pair) for pair in pairs])
                settled = await batch.ack()
                self._answered(notes, settled.statuses.tolist())

    async def _take_each(self, named: dict[str, Any]) -> None:
        async with self.client.consume(self.topic, **named) as messages:
            tasks = []
            async for message in messages:
                tasks.append(asyncio.ensure_future(self._one(message)))
                if len(tasks) > 4:
                    await asyncio.gather(*tasks)
                    tasks.clear()
            await asyncio.gather(*tasks)

    async def _one(self, message: Any) -> None:
        row = self._handed(message.id, message.attempt)
        what = self.world.random.random() if not self.town.stopped else 1.0
        try:
            if what < 0.1:
                notes = self._noted("nack", [row])
                self._answered(notes, [await message.nack(delay=0.2)])
                return
            if what < 0.4:
                await self.rest(SECOND)
            if 0.4 < what < 0.5 and not named_lease_ends(row, self.broker_us):
                await self._transact(message, row)
                return
            notes = self._noted("ack", [row])
            if what < 0.7:
                await message.ack(wait=False)
            else:
                self._answered(notes, [await message.ack(wait=True)])
        except DejaQError as error:
            assert self.is_fine(error) or isinstance(error, Refused), f"{self.name}: {error!r}"

    async def _transact(self, message: Any, row: Any) -> None:
        now_us = self.world.now_us
        ack = Settle(now_us, op="ack", staged=True, id=row.id, attempt=row.attempt)
        back = Settle(now_us, op="nack", staged=True, id=row.id, attempt=row.attempt)
        self.history.settles += [ack, back]
        self.town.watch.settled.add((row.id, row.attempt))
        send = Send(now_us, token=self.token(), transaction="not begun yet")
        fields = self.fields(send, self.town.far)
        self.history.sends.append(send)
        note = Decide(now_us)
        transaction = self.client.transaction(timeout=5)
        try:
            async with transaction:
                try:
                    number = await transaction.send(self.town.far, send.token, **fields)
                    await transaction.ack(message)
                finally:
                    send.transaction = transaction.name or f"never begun {send.token}"
                    note.transaction = send.transaction
                    note.called_us = self.world.now_us
                    self.history.decisions.append(note)
                send.id = number + self.town.watch.apart[self.town.far]
                send.answer(self.world.now_us, Outcome.OK, self.broker_us)
        except Refused:
            note.answer(self.world.now_us, Outcome.REFUSED, self.broker_us)
            ack.answer(self.world.now_us, Outcome.REFUSED, self.broker_us)
        else:
            note.answer(self.world.now_us, Outcome.OK, self.broker_us)
            ack.answer(self.world.now_us, Outcome.OK, self.broker_us)


def named_lease_ends(row: Any, broker_us: int) -> bool:
    """Whether there is no time for a transaction."""
    return bool(row.lease_end_ms * 1_000 < broker_us + SECOND // 2)
