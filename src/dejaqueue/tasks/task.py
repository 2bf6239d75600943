"""Tasks: a function, how it is run, and how it is sent.

Room: tasks. What a user decorates and calls; `app.py` keeps them by name.
Holds: a task that is called runs at once, as the function does; one that is sent is durable when
`send` has returned.
See: handle.py for what sending gives; execution.py for what runs it.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, TypeVar

from dejaqueue.errors import BadRequest, DuplicateKey
from dejaqueue.tasks.attempt import Attempt
from dejaqueue.tasks.execution import Execution
from dejaqueue.tasks.handle import Handle, Schedule
from dejaqueue.tasks.options import TaskOptions
from dejaqueue.tasks.ports import Application
from dejaqueue.tasks.signature import Signature

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A function that can be sent; made by `@app.task`.

    Attributes:
        app: which it belongs to.
        name: under which it is sent; workers find it by that.
        function: what is run.
    """

    def __init__(
        self, app: Application, name: str, function: Callable[..., Any], options: TaskOptions
    ) -> None:
        self.app, self.name, self.function = app, name, function
        self.options = options.check()
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = Signature(name, function)
        self.__doc__, self.__name__ = function.__doc__, getattr(function, "__name__", name)
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<Task {self.name} of {self.options.topic}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function, here and now."""
        return self.function(*args, **kwargs)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Have a worker call it, as soon as one can; durable when this returns.

        Raises:
            BadRequest: an argument does not fit, or JSON cannot say it.
            Unavailable: no broker in time; whether it was sent is not known.
        """
        return PlannedCall(self).send(*args, **kwargs)

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """As `send`, for asyncio."""
        return await PlannedCall(self).send_async(*args, **kwargs)

    def send_many(self, calls: Iterable[tuple[Any, ...]]) -> list[Handle[R]]:
        """Send many calls at once, each by its positional arguments; all are durable then.

        Raises:
            DuplicateKey: one of them waits already; others may have been sent.
        """
        said = [self.signature.arguments_json(args, {}) for args in calls]
        if not said:
            return []
        self.app.create(self)
        rows = [self._fields(one) for one in said]
        answer = self.app.client.send_batch(self.options.topic, rows)
        answer.raise_for_status()
        return [Handle(self, self.options.topic, one) for one in answer.ids.tolist()]

    def message(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """The message of a call, as the arguments of `Client.send`; for whoever sends it otherwise:
        `outbox.send(connection, **invite.message("alice"))`.

        Raises:
            BadRequest: an argument does not fit, or JSON cannot say it.
        """
        said = self.signature.arguments_json(args, kwargs)
        return {"topic": self.options.topic, **self._fields(said)}

    def handle(self, id: int) -> Handle[R]:  # noqa: A002 - the message's own word
        """The handle of a call that was sent before, here or elsewhere, by its id."""
        return Handle(self, self.options.topic, id)

    def at(self, time: datetime | int) -> PlannedCall[P, R]:
        """Not before this: a datetime with a time zone, or UTC milliseconds."""
        return PlannedCall(self).at(time)

    def in_(self, delay: timedelta | float) -> PlannedCall[P, R]:
        """Not before so long from now: a timedelta or seconds."""
        return PlannedCall(self).in_(delay)

    def with_key(self, key: str) -> PlannedCall[P, R]:
        """Under a name of its own: while a call of this key waits or is at work, `send` gives
        that one."""
        return PlannedCall(self).with_key(key)

    def every(self, cron: str | timedelta, zone: str = "UTC") -> RecurringCall[P]:
        """Again and again: by a cron expression in a time zone, or at an interval."""
        return RecurringCall(self, cron, zone)

    def test(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it here and now as a worker would, without a broker: arguments and result go through
        JSON, middleware is called; once, whatever its retries say.

        Raises:
            BadRequest: arguments or result do not fit. What the function raises.
        """
        said = json.loads(json.dumps(self.signature.arguments_json(args, kwargs)))
        given, named = self.signature.arguments(said)
        attempt = Attempt(self, args=given, kwargs=named)
        value = Execution(self.app).call(attempt)
        if self.options.result is None:
            return value  # type: ignore[no-any-return]
        kept = json.loads(json.dumps(self.signature.result_json(value)))
        return self.signature.result(kept)  # type: ignore[no-any-return]

    # --- what is sent --------------------------------------------------------------------------

    def _fields(self, said: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        """The fields of the message of a call."""
        options = self.options
        fields: dict[str, Any] = {"json": {"task": self.name, "args": said}}
        if key is None and options.unique:
            key = self._unique_key(said)
        if key is not None:
            fields["key"] = key
        if options.group:
            args, kwargs = self.signature.arguments(said, is_whole=True)
            group = options.group
            fields["group"] = group(*args, **kwargs) if callable(group) else group
        if options.priority is not None:
            fields["priority"] = options.priority
        return fields

    def _unique_key(self, said: dict[str, Any]) -> str:
        unique = self.options.unique
        if callable(unique):
            args, kwargs = self.signature.arguments(said, is_whole=True)
            text = str(unique(*args, **kwargs))
        else:
            text = json.dumps(said, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        return f"{self.name[-200:]}/{digest}"


@dataclass(frozen=True, slots=True)
class PlannedCall(Generic[P, R]):
    """A task with a time or a key, to be sent; made by `at`, `in_` and `with_key`."""

    task: Task[P, R]
    due: datetime | int | None = None
    delay: timedelta | float | None = None
    key: str | None = None

    def at(self, time: datetime | int) -> PlannedCall[P, R]:
        """See `Task.at`."""
        return replace(self, due=time, delay=None)

    def in_(self, delay: timedelta | float) -> PlannedCall[P, R]:
        """See `Task.in_`."""
        return replace(self, delay=delay, due=None)

    def with_key(self, key: str) -> PlannedCall[P, R]:
        """See `Task.with_key`."""
        return replace(self, key=key)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Send it. See `Task.send`."""
        task = self.task
        fields = task._fields(task.signature.arguments_json(args, kwargs), self.key)
        topic = task.app.create(task)
        try:
            sent = task.app.client.send(topic, due=self.due, delay=self.delay, **fields)
        except DuplicateKey as taken:
            if taken.id < 0:
                raise
            return Handle(task, topic, taken.id, is_new=False)
        return Handle(task, topic, sent)

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """As `send`, for asyncio."""
        return await asyncio.to_thread(self.send, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class RecurringCall(Generic[P]):
    """A task with a schedule, to be sent; made by `every`."""

    task: Task[P, Any]
    cron: str | timedelta
    zone: str = "UTC"
    key: str = ""

    def with_key(self, key: str) -> RecurringCall[P]:
        """The schedule's name; otherwise it is the task's."""
        return replace(self, key=key)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Schedule:
        """Have it called by this schedule, from now on. Of the same name there is one: sending it
        again, as each start of a program may, changes it to be so.

        Each firing has the priority and the group of a call.

        Raises:
            BadRequest: expression, zone or an argument is wrong, or the task is `unique`: a firing
                has no key, so nothing would keep two of them apart.
        """
        task = self.task
        if task.options.unique:
            raise BadRequest("every", "a task without unique=, as a firing has no key", task.name)
        fields = task._fields(task.signature.arguments_json(args, kwargs), "")
        topic = task.app.create_cron(task)
        when: dict[str, Any] = {"cron": self.cron, "zone": self.zone}
        if isinstance(self.cron, timedelta):
            when = {"every_ms": self.cron // timedelta(milliseconds=1)}
        payload = json.dumps(fields["json"], separators=(",", ":"), ensure_ascii=False).encode()
        name = self.key or task.name
        more = {field: fields[field] for field in ("group", "priority") if field in fields}
        task.app.client.cron(topic).put(name, payload=payload, **more, **when)
        return Schedule(task, topic, name)

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> Schedule:
        """As `send`, for asyncio."""
        return await asyncio.to_thread(self.send, *args, **kwargs)
