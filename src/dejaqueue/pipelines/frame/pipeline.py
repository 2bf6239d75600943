"""What a pipeline is, what it runs in, and what comes out of it.

Room: pipelines.
Holds: Spark starts when a pipeline first asks for it: what needs none does not wait for it.
See: session.py, progress.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from dejaqueue.clock import Clock, SystemClock
from dejaqueue.pipelines.frame.options import PipelineOptions
from dejaqueue.pipelines.frame.progress import Progress, make_progress
from dejaqueue.pipelines.frame.session import Session, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Options = TypeVar("Options", bound=PipelineOptions)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        figures: printed one `name value` a line, or as one JSON object. A list of objects is
            printed as lines `name_1 …`, with the values of one on each.
        is_good: False = the run did what it should and found that something is wrong: exit
            status 1.
    """

    figures: Mapping[str, Any] = field(default_factory=dict)
    is_good: bool = True


@dataclass(frozen=True, slots=True)
class Pipeline(Generic[Options]):
    """A pipeline.

    Attributes:
        name: of its module and of its command.
        options: its options; fields become options of the command line.
        run: does it; its docstring is the help.
        epilog: below the help: examples.
        needs: settings that Spark must start with for these options, as `spark.jars.packages`.
    """

    name: str
    options: type[Options]
    run: Callable[[Options, Run], Outcome]
    epilog: str = ""
    needs: Callable[[Options], Mapping[str, str]] = lambda _: {}


class Run:
    """What a pipeline works with: a Spark session, a clock, and a place to say how far it is.

    Args:
        spark: a session to use; None = `session` says which one is found or made.
        session: how a session is made, if there is none in this program.
        progress: where to say how far it is; None = standard error.
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        session: Session | None = None,
        progress: Progress | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.progress = progress or make_progress(self.clock)
        self._given, self._session = spark, session or Session()
        self._spark: SparkSession | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.progress)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._spark = None
        self._stack.close()

    @property
    def spark(self) -> SparkSession:
        """The session, with the format `dejaq` known and UTC as its time zone.

        Raises:
            BadRequest: pyspark or Java is missing; says how to install it.
        """
        if self._spark is None:
            made = spark_session(self._session, self._given, self.progress)
            self._spark = self._stack.enter_context(made)
            self.progress.watch(self._spark)
        return self._spark

    def step(self, text: str) -> AbstractContextManager[None]:
        """Say that this is being done, how far Spark is meanwhile, and how long it took."""
        return self.progress.step(text)

    def say(self, text: str) -> None:
        """A line for itself."""
        self.progress.say(text)
