"""Consumers that Kubernetes starts and ends, as a model: its horizontal autoscaler, and pods.

Room: bench. Numbers in, numbers out; time is a number of seconds.
Holds: what it does is what the autoscaler's documentation says of its defaults: a look every 15 s,
nothing for a tenth more or less, at most twice as many or four more in 15 s, fewer only when no
look of the last five minutes wanted more.
See: questions/scaling.py, which has it serve a topic; docs/guides/kubernetes.md for KEDA, which
feeds this autoscaler.
"""

from __future__ import annotations

import math
from collections import deque

LOOK_SECONDS = 15
TOLERANCE = 0.1
DOWN_SECONDS = 300
DOUBLES, MORE_MIN = 2, 4
"""In one look: so many times as many, or so many more, whichever is more."""


class Autoscaler:
    """Decides how many pods there shall be.

    Args:
        target: of the figure that is looked at, what one pod takes.
        most: pods at most; there is always one.
        is_bounded: False = a look may ask for any number of pods at once.
    """

    def __init__(self, target: float, most: int, *, is_bounded: bool = True) -> None:
        self._target, self._most, self._is_bounded = target, most, is_bounded
        self._asked: deque[tuple[int, int]] = deque()
        self.pods = 1

    def look(self, second: int, figure: float) -> int:
        """How many pods there shall be from now on.

        Args:
            figure: what the scaler asked for.
        """
        asked = min(self._most, max(1, math.ceil(figure / self._target)))
        if abs(figure / (self.pods * self._target) - 1) <= TOLERANCE:
            asked = self.pods
        self._asked.append((second, asked))
        while self._asked[0][0] <= second - DOWN_SECONDS:
            self._asked.popleft()
        if asked > self.pods:
            bound = max(DOUBLES * self.pods, self.pods + MORE_MIN)
            self.pods = min(asked, bound) if self._is_bounded else asked
        else:
            self.pods = min(self.pods, max(wanted for _, wanted in self._asked))
        return self.pods


class Pods:
    """Pods that run, and those that are still starting.

    Args:
        start_seconds: from the decision until a pod takes messages.
    """

    def __init__(self, start_seconds: int) -> None:
        self._start_seconds = start_seconds
        self._since = [-start_seconds]
        self.pod_seconds = 0

    def scale(self, second: int, count: int) -> None:
        """Start what is missing; end what is too many, the youngest first."""
        while len(self._since) < count:
            self._since.append(second)
        del self._since[count:]

    def working(self, second: int) -> int:
        """How many take messages by now."""
        return sum(since + self._start_seconds <= second for since in self._since)

    def pass_second(self) -> None:
        """Count what they cost."""
        self.pod_seconds += len(self._since)
