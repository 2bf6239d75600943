"""Execution: an attempt at a call is made, and its message settled by what came of it.

Room: tasks. On the thread or in the loop that has the message; the client's `run` calls it.
Holds: a message is settled once; a result is durable before its message is acked; what a function
raises ends its attempt and nothing else.
See: attempt.py for what becomes of it; worker/worker_process.py, which runs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from dejaqueue.client import AsyncMessage, Message, story_of
from dejaqueue.errors import BadRequest, DejaQError
from dejaqueue.tasks.attempt import Attempt, Fate, TimeLimitExceeded, attempt_now, fate_of
from dejaqueue.tasks.middleware import Middleware
from dejaqueue.tasks.ports import Application
from dejaqueue.tasks.results import Outcome, failure_of
from dejaqueue.tasks.time_limit import TimeLimits

log = logging.getLogger("dejaqueue.tasks")

UNKNOWN_DELAY_S = 30.0
"""A call of a task that this worker does not know: another one may, after a deployment."""


class Observer(Protocol):
    """Who is told what is at work."""

    def begin(self, attempt: Attempt) -> int:
        """An attempt begins; gives its number for `end`."""
        ...

    def end(self, place: int, fate: Fate) -> None:
        """It has ended so, and its message is settled."""
        ...


class Execution:
    """Runs the calls of an application.

    Args:
        observer: is told what is at work; None = nobody.
    """

    def __init__(self, app: Application, observer: Observer | None = None) -> None:
        self._app = app
        self._observer = observer
        self._limits = TimeLimits()

    # --- a call --------------------------------------------------------------------------------

    def call(self, attempt: Attempt) -> Any:
        """Call the function of an attempt, on this thread. Raises what it raises."""
        timeout = attempt.task.options.timeout
        token = attempt_now.set(attempt)
        try:
            with _MiddlewareCall(self._app.middleware, attempt) as around:
                if attempt.task.is_async:
                    value = asyncio.run(_in_time(attempt))
                elif timeout is None:
                    value = attempt.task.function(*attempt.args, **attempt.kwargs)
                else:
                    with self._limits.within(timeout, attempt.task.name):
                        value = attempt.task.function(*attempt.args, **attempt.kwargs)
                return around.returned(value)
        finally:
            attempt_now.reset(token)

    async def call_async(self, attempt: Attempt) -> Any:
        """The same in this loop; a plain function on a thread of its own."""
        if not attempt.task.is_async:
            return await asyncio.to_thread(self.call, attempt)
        token = attempt_now.set(attempt)
        try:
            with _MiddlewareCall(self._app.middleware, attempt) as around:
                return around.returned(await _in_time(attempt))
        finally:
            attempt_now.reset(token)

    # --- a message -----------------------------------------------------------------------------

    def run(self, topic: str, message: Message) -> None:
        """Work on one message of a topic, for `Client.run`."""
        attempt = self._attempt(topic, message)
        if isinstance(attempt, Fate):
            message.nack(**_words(attempt), wait=False)
            return
        place = -1 if self._observer is None else self._observer.begin(attempt)
        value, fate = None, Fate(is_done=True)
        try:
            value = self.call(attempt)
        except Exception as error:  # noqa: BLE001 - it says what becomes of the attempt
            fate = self._failed(attempt, error)
        fate = self._kept(attempt, fate, value)
        if fate.is_done:
            message.ack(wait=False)
        else:
            message.nack(**_words(fate), wait=False)
        if self._observer is not None:
            self._observer.end(place, fate)

    async def run_async(self, topic: str, message: AsyncMessage) -> None:
        """The same for `AsyncClient.run`."""
        attempt = self._attempt(topic, message)
        if isinstance(attempt, Fate):
            await message.nack(**_words(attempt), wait=False)
            return
        place = -1 if self._observer is None else self._observer.begin(attempt)
        value, fate = None, Fate(is_done=True)
        try:
            value = await self.call_async(attempt)
        except Exception as error:  # noqa: BLE001 - it says what becomes of the attempt
            fate = self._failed(attempt, error)
        if attempt.task.options.result is not None:
            fate = await asyncio.to_thread(self._kept, attempt, fate, value)
        if fate.is_done:
            await message.ack(wait=False)
        else:
            await message.nack(**_words(fate), wait=False)
        if self._observer is not None:
            self._observer.end(place, fate)

    def _attempt(self, topic: str, message: Message | AsyncMessage) -> Attempt | Fate:
        """The attempt that a message asks for, or what becomes of one that asks for none."""
        try:
            said = message.json()
            name = said["task"]
            task = self._app.find(name)
            if task is None:
                known = BadRequest("task", "one that this worker has", name)
                log.warning("call %d: %s", message.id, known, extra={"task": name})
                return Fate(delay_s=UNKNOWN_DELAY_S, error=known)
            args, kwargs = task.signature.arguments(said["args"])
        except (BadRequest, KeyError, TypeError) as error:
            log.error("message %d of %s is no call: %s", message.id, self._app.name, error)
            return Fate(is_dead=True, error=error)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s begins, attempt %d", name, message.attempt, extra=_facts(name, message))
        return Attempt(
            task,
            message.id,
            topic,
            message.attempt,
            message.due_ms,
            message.headers,
            args,
            kwargs,
        )

    def _failed(self, attempt: Attempt, error: Exception) -> Fate:
        fate = fate_of(attempt, error)
        name = attempt.task.name
        then = "is dead" if fate.is_dead else f"comes again in {fate.delay_s:g} s"
        summary = story_of(error).partition("\n")[0]
        log.warning(
            "%s failed in attempt %d and %s: %s",
            *(name, attempt.number, then, summary),
            exc_info=error,
            extra={"task": name, "message_id": attempt.id, "attempt": attempt.number},
        )
        return fate

    def _kept(self, attempt: Attempt, fate: Fate, value: Any) -> Fate:
        """Keep the result, if there is to be one; what cannot be kept fails the attempt."""
        life_s = attempt.task.options.result
        if life_s is None or not (fate.is_done or fate.is_dead):
            return fate
        try:
            if fate.is_done:
                outcome = Outcome(attempt.task.signature.result_json(value))
            else:
                assert fate.error is not None
                outcome = Outcome(failure=failure_of(fate.error))
            self._app.results.put(self._app.client, attempt.topic, attempt.id, outcome, life_s)
        except BadRequest as error:  # the function ran; to run it again would give the same
            log.error("%s: its result is not kept: %s", attempt.task.name, error)
            return Fate(is_dead=True, error=error)
        except DejaQError as error:
            return self._failed(attempt, error)
        return fate


def _facts(name: str, message: Message | AsyncMessage) -> dict[str, Any]:
    return {"task": name, "message_id": message.id, "attempt": message.attempt}


def _words(fate: Fate) -> dict[str, Any]:
    """What a nack says."""
    assert fate.error is not None
    if fate.is_dead:
        return {"dead": True, "reason": story_of(fate.error)}
    return {"delay": fate.delay_s, "reason": story_of(fate.error)}


async def _in_time(attempt: Attempt) -> Any:
    """Await the coroutine function of an attempt, as long as it may take."""
    timeout = attempt.task.options.timeout
    call: Callable[..., Any] = attempt.task.function
    if timeout is None:
        return await call(*attempt.args, **attempt.kwargs)
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await call(*attempt.args, **attempt.kwargs)
    except TimeoutError:
        if limit.expired():
            raise TimeLimitExceeded(f"{attempt.task.name}: at most {timeout:g} s") from None
        raise


class _MiddlewareCall:
    """Middleware around one call: those whose `before` was called hear how it ended."""

    def __init__(self, middleware: list[Middleware], attempt: Attempt) -> None:
        self._left = list(reversed(middleware))
        self._begun: list[Middleware] = []
        self._attempt = attempt

    def __enter__(self) -> _MiddlewareCall:
        try:
            while self._left:
                one = self._left.pop()
                self._begun.append(one)
                one.before(self._attempt)
        except BaseException as error:
            self._tell(error)
            raise
        return self

    def returned(self, value: Any) -> Any:
        """The function has returned this."""
        while self._begun:
            one = self._begun[-1]
            one.after(self._attempt, value)
            self._begun.pop()
        return value

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._tell(error)

    def _tell(self, error: BaseException) -> None:
        while self._begun:
            one = self._begun.pop()
            try:
                one.error(self._attempt, error)
            except Exception:
                log.exception("middleware %r raised in error()", type(one).__name__)
