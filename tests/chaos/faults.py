"""What goes wrong: kinds of faults, and a plan of them that a seed decides.

A plan says what is done to whom, when and for how long; "owner" is whoever serves a topic when the
fault begins. The same seed makes the same plan; what the cluster makes of it is its own affair.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.chaos.clocks import HOUR_US, TEN_YEARS_US
from tests.chaos.machines import BROKERS, SERVERS
from tests.chaos.network import CLIENTS

if TYPE_CHECKING:
    from tests.chaos.run import Chaos

Mend = Callable[[], None]
OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a plan.

    Attributes:
        kind: a key of KINDS.
        whom: a broker, or `owner`.
        topic: place of the topic whose owner is meant.
        size: what its kind makes of it: ms, percent, a direction.
    """

    kind: str
    whom: str
    topic: int
    size: int

    def __str__(self) -> str:
        whose = f"{OWNER} of topic {self.topic}" if self.whom == OWNER else self.whom
        return f"{self.kind} ({whose}, {self.size})"


@dataclass(frozen=True, slots=True)
class Step:
    """Faults that begin together; after `gap_s` of peace, for `length_s` seconds."""

    gap_s: float
    length_s: float
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        together = " + ".join(str(fault) for fault in self.faults)
        return f"after {self.gap_s:.1f} s, for {self.length_s:.1f} s: {together}"


def others(name: str) -> list[str]:
    """The other brokers."""
    return [other for other in BROKERS if other != name]


# --- the network ----------------------------------------------------------------------------------


def _split(chaos: Chaos, left: Sequence[str], right: Sequence[str]) -> Mend:
    pairs = [(i, j) for i in left for j in right] + [(j, i) for i in left for j in right]
    chaos.network.lose(pairs)
    return lambda: chaos.network.join(pairs)


def alone(chaos: Chaos, whom: str, size: int) -> Mend:
    """Hears nobody and is heard by nobody; in half of the cases not even by clients."""
    rest = [*others(whom), *chaos.servers, *([CLIENTS] if size % 2 else [])]
    return _split(chaos, [whom], rest)


def minority(chaos: Chaos, whom: str, size: int) -> Mend:
    """Two brokers on one side, the third and the servers on the other; clients reach all."""
    return _split(chaos, others(whom), [whom, *chaos.servers])


def one_way(chaos: Chaos, whom: str, size: int) -> Mend:
    """What it says does not arrive, or what is said to it does not."""
    rest = [*others(whom), *chaos.servers]
    pairs = [(whom, one) if size % 2 else (one, whom) for one in rest]
    chaos.network.lose(pairs)
    return lambda: chaos.network.join(pairs)


def ring(chaos: Chaos, whom: str, size: int) -> Mend:
    """Each hears its neighbours in a ring only; of three, two do not hear each other."""
    places = [whom, *others(whom), *chaos.servers]
    if len(places) == 3:
        return _split(chaos, places[:1], places[1:2])
    first = _split(chaos, places[0:1], places[2:3])
    second = _split(chaos, places[1:2], places[3:4])

    def mend() -> None:
        first()
        second()

    return mend


def flapping(chaos: Chaos, whom: str, size: int) -> Mend:
    """Alone, and not, and alone again, every half second or so."""
    period_s = 0.2 + size % 10 / 10
    state: list[Mend] = []

    def turn() -> None:
        if state:
            state.pop()()
        else:
            state.append(alone(chaos, whom, size))

    ticket = chaos.every(period_s, turn)

    def mend() -> None:
        chaos.cancel(ticket)
        if state:
            state.pop()()

    turn()
    return mend


def delay(chaos: Chaos, whom: str, size: int) -> Mend:
    """Everything to and from it takes 10 to 200 ms longer."""
    chaos.network.delay(whom, 10 + size % 190)
    return lambda: chaos.network.delay(whom, 0)


def loss(chaos: Chaos, whom: str, size: int) -> Mend:
    """Of its packets 10 to 40 % are lost."""
    pairs = [pair for pair in chaos.network.pairs() if whom in pair]
    pairs += [(j, i) for i, j in pairs]
    chaos.network.lose(pairs, 10 + size % 30)
    return lambda: chaos.network.join(pairs)


def reset(chaos: Chaos, whom: str, size: int) -> Mend:
    """All its connections break, again and again."""
    ticket = chaos.every(0.3 + size % 10 / 10, lambda: chaos.network.reset(whom))
    chaos.network.reset(whom)
    return lambda: chaos.cancel(ticket)


# --- processes ------------------------------------------------------------------------------------


def pause(chaos: Chaos, whom: str, size: int) -> Mend:
    """SIGSTOP, with requests in flight; longer than the lease."""
    broker = chaos.brokers[whom]
    broker.tell(signal.SIGSTOP)
    return lambda: broker.tell(signal.SIGCONT)


def kill(chaos: Chaos, whom: str, size: int) -> Mend:
    """SIGKILL, and a new process."""
    broker = chaos.brokers[whom]
    broker.end()
    return broker.start


def rolling(chaos: Chaos, whom: str, size: int) -> Mend:
    """One after the other is stopped as it should be, and started again."""
    for name in (whom, *others(whom)):
        broker = chaos.brokers[name]
        broker.end(signal.SIGTERM)
        broker.start()
        chaos.wait_ready(name)
    return lambda: None


def kill_facts(chaos: Chaos, whom: str, size: int) -> Mend:
    """What keeps the facts is killed."""
    return chaos.backend.kill_facts()


def kill_records(chaos: Chaos, whom: str, size: int) -> Mend:
    """What keeps the journals is killed."""
    return chaos.backend.kill_records(chaos.topics[size % len(chaos.topics)])


# --- clocks ---------------------------------------------------------------------------------------


def clock_ahead(chaos: Chaos, whom: str, size: int) -> Mend:
    """Its wall clock jumps forward by an hour, ten years or a few seconds, and back when the
    fault ends."""
    return _jump(chaos, whom, _far_us(size))


def clock_behind(chaos: Chaos, whom: str, size: int) -> Mend:
    """Its wall clock jumps back by an hour, ten years or a few seconds, and forward when the
    fault ends."""
    return _jump(chaos, whom, -_far_us(size))


def _far_us(size: int) -> int:
    if size % 2:
        return HOUR_US if size % 4 == 1 else TEN_YEARS_US
    return 1_000_000 + size * 3_000


def _jump(chaos: Chaos, whom: str, offset_us: int) -> Mend:
    clock = chaos.brokers[whom].clock
    clock.set(offset_us)
    return lambda: clock.set(0)


def drift(chaos: Chaos, whom: str, size: int) -> Mend:
    """Its wall clock runs 10 % too fast or too slow: 10 ms in every 100."""
    clock = chaos.brokers[whom].clock
    step_us = 10_000 if size % 2 else -10_000
    ticket = chaos.every(0.1, lambda: clock.set(clock.offset_us + step_us))

    def mend() -> None:
        chaos.cancel(ticket)
        clock.set(0)

    return mend


# --- disks ----------------------------------------------------------------------------------------


def disk_full(chaos: Chaos, whom: str, size: int) -> Mend:
    """Something else fills the disk that it writes to: to the end, or nearly."""
    disk = chaos.backend.disk(whom)
    disk.fill(0 if size % 2 else chaos.backend.short_bytes)
    return disk.empty


def disk_slow(chaos: Chaos, whom: str, size: int) -> Mend:
    """Each write to that disk, and each sync, takes 5 to 55 ms longer."""
    disk = chaos.backend.disk(whom)
    disk.slow(5 + size % 50)
    return lambda: disk.slow(0)


def disk_read_only(chaos: Chaos, whom: str, size: int) -> Mend:
    """That disk takes no changes."""
    disk = chaos.backend.disk(whom)
    disk.read_only(True)
    return lambda: disk.read_only(False)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        field: of `network`, `quality`, `process`, `server`, `clock`, `disk`; two of one do not go
            together.
    """

    field: str
    begin: Callable[[Chaos, str, int], Mend]


KINDS = {
    "alone": Kind("network", alone),
    "minority": Kind("network", minority),
    "one-way": Kind("network", one_way),
    "ring": Kind("network", ring),
    "flapping": Kind("network", flapping),
    "delay": Kind("quality", delay),
    "loss": Kind("network", loss),
    "reset": Kind("quality", reset),
    "pause": Kind("process", pause),
    "kill": Kind("process", kill),
    "rolling": Kind("process", rolling),
    "coordinator": Kind("server", kill_facts),
    "journal": Kind("server", kill_records),
    "clock-ahead": Kind("clock", clock_ahead),
    "clock-behind": Kind("clock", clock_behind),
    "drift": Kind("clock", drift),
    "disk-full": Kind("disk", disk_full),
    "disk-slow": Kind("disk", disk_slow),
    "disk-read-only": Kind("disk", disk_read_only),
}
HEAVY = {"rolling", "coordinator", "journal"}
"""Not together with others: they wait for something to come back."""


def plan(
    seed: int,
    seconds: float,
    kinds: Sequence[str],
    topics: int,
    lengths_s: tuple[float, float] = (4.0, 15.0),
    gaps_s: tuple[float, float] = (1.0, 5.0),
    together: float = 0.3,
    *,
    everything: bool = False,
) -> list[Step]:
    """What happens in so many seconds: each kind comes once before any comes again.

    Args:
        together: how often a fault has company.
        everything: go on until each kind has come once, however long that takes.
    """
    dice = random.Random(f"chaos {seed}")
    steps: list[Step] = []
    bag: list[str] = []
    used = 0.0
    while used < seconds or (everything and (bag or not steps)):
        first = _draw(dice, bag, kinds)
        chosen = [first]
        while first not in HEAVY and len(chosen) < 3 and dice.random() < together:
            fields = {KINDS[kind].field for kind in chosen}
            fitting = [k for k in bag if KINDS[k].field not in fields and k not in HEAVY]
            if not fitting:
                break
            bag.remove(fitting[0])
            chosen.append(fitting[0])
        faults = tuple(_fault(dice, kind, topics) for kind in chosen)
        step = Step(dice.uniform(*gaps_s), dice.uniform(*lengths_s), faults)
        steps.append(step)
        used += step.gap_s + step.length_s
    return steps


def _fault(dice: random.Random, kind: str, topics: int) -> Fault:
    whom = OWNER if dice.random() < 0.7 else dice.choice(BROKERS)
    topic, size = dice.randrange(topics), dice.randrange(1_000)
    return Fault(kind, whom, topic, size)


def _draw(dice: random.Random, bag: list[str], kinds: Sequence[str]) -> str:
    if not bag:
        bag += kinds
        dice.shuffle(bag)
    return bag.pop()


def servers_of(backend: str) -> list[str]:
    """The machines of a backend that are no brokers."""
    return [SERVERS] if backend in {"servers", "zookeeper"} else []
