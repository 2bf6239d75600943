"""The application: its tasks by name, the client they are sent by, the topics they need.

Room: tasks. What a program makes once; loaded by `dejaq worker MODULE:app`.
Holds: a client belongs to one process: after a fork there is a new one; a topic is made once.
See: task.py; worker/ for what runs them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack, overload

from dejaqueue.client import AsyncClient, Client, Tls
from dejaqueue.clock import Clock, SteadyClock
from dejaqueue.errors import BadRequest, TopicExists
from dejaqueue.tasks.middleware import Middleware
from dejaqueue.tasks.options import TaskOptions
from dejaqueue.tasks.results import Results
from dejaqueue.tasks.task import Task

P = ParamSpec("P")
R = TypeVar("R")

URL_DEFAULT = "dejaq://localhost:7464"


class Options(TypedDict, total=False):
    """What `@app.task` takes; see `TaskOptions`."""

    topic: str
    retries: int
    backoff: timedelta | float | Callable[[int], float]
    timeout: timedelta | float | None
    timeout_hard: timedelta | float | None
    unique: bool | Callable[..., str]
    priority: int | None
    group: str | Callable[..., str]
    result: timedelta | float | None


class Tasks:
    """The tasks of a program.

    Args:
        url: of the broker, as for `Client`.
        name: of the application: its topic unless a task names another, and the first part of
            the names of its other topics.
        api_key, tls: as for `Client`.
        client: instead of a URL: a client that is there already; for tests.
        clock: of that client, where it is not the machine's.
        middleware: called around each task, in this order.

    Example:
        >>> app = Tasks("dejaq://localhost:7464")
        >>> @app.task(retries=3)
        ... def greet(name: str) -> str:
        ...     return f"hello {name}"
        >>> greet.test("alice")
        'hello alice'
    """

    def __init__(
        self,
        url: str = URL_DEFAULT,
        *,
        name: str = "tasks",
        api_key: str | None = None,
        tls: Tls | None = None,
        client: Client | None = None,
        clock: Clock | None = None,
        middleware: Iterable[Middleware] = (),
    ) -> None:
        self.url, self.name = url, name
        self.clock: Clock = clock if clock is not None else SteadyClock()
        self.middleware: list[Middleware] = list(middleware)
        self.results = Results(f"{name}.results")
        self._api_key, self._tls = api_key, tls
        self._given = client
        self._clients: dict[int, Client] = {}
        self._mutex = threading.Lock()
        self._tasks: dict[str, Task[..., Any]] = {}
        self._created: set[tuple[int, str]] = set()

    def __repr__(self) -> str:
        return f"<Tasks {self.name} at {self.url}, {len(self._tasks)} tasks>"

    # --- the tasks -----------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, Awaitable[R]]) -> Task[P, R]: ...

    @overload
    def task(self, function: Callable[P, R]) -> Task[P, R]: ...

    @overload
    def task(
        self, function: None = None, *, name: str = "", **options: Unpack[Options]
    ) -> _GivenOptions: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str = "",
        **options: Unpack[Options],
    ) -> Any:
        """Make a task of a function; used as `@app.task` or `@app.task(retries=3)`.

        Args:
            function: plain or `async`; its arguments and its result are values of JSON, or of the
                types that its annotations name.
            name: under which it is sent; module and function unless given.
            options: of `TaskOptions`; lengths of time are seconds or timedeltas.

        Raises:
            BadRequest: an option or a type is wrong, or the name is taken.
        """
        if function is None:
            return _GivenOptions(self, name, options)
        return self.add(function, name, options)

    def add(self, function: Callable[..., Any], name: str, options: Options) -> Task[..., Any]:
        """As `task`, without a decorator."""
        known = TaskOptions.__dataclass_fields__
        for field in options:
            if field not in known:
                raise BadRequest("option of a task", f"one of {', '.join(known)}", field)
        name = name or f"{function.__module__}.{function.__qualname__}"
        values: dict[str, Any] = {"topic": self.name}
        values |= {field: _seconds(value) for field, value in options.items()}
        if name in self._tasks:
            raise BadRequest("name of a task", "one that no other task has", name)
        task: Task[..., Any] = Task(self, name, function, TaskOptions(**values))
        for other in self._tasks.values():
            same = other.options.topic == task.options.topic
            if same and other.options.kind != task.options.kind:
                limit = f"as those of {other.name} in the topic {task.options.topic}"
                raise BadRequest(f"priority and group of {name}", limit, task.options.kind)
        self._tasks[name] = task
        return task

    def find(self, name: str) -> Task[..., Any] | None:
        """The task of this name; None if there is none."""
        return self._tasks.get(name)

    def use(self, middleware: Middleware) -> None:
        """Call this around each task, too."""
        self.middleware.append(middleware)

    def __iter__(self) -> Iterator[Task[..., Any]]:
        return iter(self._tasks.values())

    # --- the broker ----------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """The client of this process."""
        if self._given is not None:
            return self._given
        me = os.getpid()
        client = self._clients.get(me)
        if client is None:
            with self._mutex:
                client = self._clients.get(me)
                if client is None:
                    client = Client(self.url, name=self.name, api_key=self._api_key, tls=self._tls)
                    self._clients[me] = client
        return client

    def async_client(self) -> AsyncClient:
        """A new client for an event loop; whoever asks for it closes it."""
        return AsyncClient(self.url, name=self.name, api_key=self._api_key, tls=self._tls)

    def topics(self) -> dict[str, str]:
        """The topics that workers take calls from, and the kind of each."""
        kinds: dict[str, str] = {}
        for task in self._tasks.values():
            kinds[task.options.topic] = task.options.kind
            kinds[self.cron_topic(task)] = "cron"
        return kinds

    def cron_topic(self, task: Task[..., Any]) -> str:
        """The topic of the schedules of a task."""
        return f"{task.options.topic}.cron"

    def create(self, task: Task[..., Any]) -> str:
        """The topic of a task; made if it is not there."""
        return self._create(task.options.topic, task.options.kind)

    def create_cron(self, task: Task[..., Any]) -> str:
        """The topic of the schedules of a task; made if it is not there."""
        return self._create(self.cron_topic(task), "cron")

    def create_all(self) -> None:
        """Make all topics that workers need and that are not there."""
        for topic, kind in self.topics().items():
            self._create(topic, kind)
        self.results.create(self.client)

    def _create(self, topic: str, kind: str) -> str:
        place = (os.getpid(), topic)
        if place in self._created:
            return topic
        try:
            self.client.create_topic(topic, kind=kind)  # type: ignore[arg-type]
        except TopicExists:
            found = self.client.topic(topic).kind
            if found != kind:
                raise BadRequest(f"kind of topic {topic}", f"{kind}, as its tasks need", found)
        self._created.add(place)
        return topic

    def close(self) -> None:
        """Close the client of this process, unless it was given. Twice is fine."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _GivenOptions:
    """What `@app.task(...)` gives: makes tasks of one kind."""

    def __init__(self, app: Tasks, name: str, options: Options) -> None:
        self._app, self._name, self._options = app, name, options

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...

    def __call__(self, function: Callable[..., Any]) -> Any:
        return self._app.add(function, self._name, self._options)


def _seconds(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value
