"""One simulation of a cluster's API keys: made, revoked and tried at any broker at once; judged.

The brokers are whole (tests/simulation/cluster/machines.py) and so is what breaks; the coordinator
takes time for each call about keys, so that changes meet, and somebody without the secret writes to
it. Judged by what docs/guides/security.md promises:

 1. A key works nowhere later than four fifths of the lease after its revocation was answered.
 2. A key that was made works, no later than that after the answer, wherever keys can be confirmed,
    until it is revoked. A broker that was cut off before the first key does not know of it. Where
    somebody without the secret overwrites the document, a key works at brokers that know it; others
    hear of it when one of these is there to store it again.
 3. In the end all brokers know the same keys: all that were made, none that was revoked, and no two
    of one name; there is an admin.
 4. A key that somebody without the secret slipped in works nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from dejaqueue.access.api_keys import new_key
from dejaqueue.access.gate import Gate
from dejaqueue.access.roles import EVERYBODY, Grant, Role
from dejaqueue.access.seal import Seal
from dejaqueue.broker.broker import Broker
from dejaqueue.cluster.key_copy import KeyCopy
from dejaqueue.cluster.secret import machine_secret
from dejaqueue.cluster.shared_keys import PREFIX, SharedKeys
from dejaqueue.coordinator.interface import Coordinator, Fact
from dejaqueue.errors import BadRequest, Refused, Unauthenticated, Unavailable
from dejaqueue.testing.simulation.network import Connection
from dejaqueue.testing.simulation.world import START_US, World
from tests.checker.fault import Fault
from tests.simulation.cluster.faults import ClusterFaults
from tests.simulation.cluster.fibers import FiberClock, Fibers
from tests.simulation.cluster.machines import Cluster, ClusterMachine
from tests.simulation.cluster.plan import LEASE_MS
from tests.simulation.run import SECOND, Run
from tests.simulation.scenario import choose

BOUND_US = LEASE_MS * 800
SETTLE_US = 8 * SECOND
ROOT = "root"
NAMES = ("shop", "till", "web", "night", "second")
ADMIN = "second"
"""Of this name are admins, too, so that there is sometimes a last one to keep."""


@dataclass
class Key:
    """A key, as somebody asked for it.

    Attributes:
        made_us: when it was answered that it is there.
        asked_us: when somebody first asked for its end, whatever came of it; None = nobody has.
        revoked_us: when it was answered that it is revoked.
        known_to: the brokers that have let it in.
    """

    name: str
    text: str
    made_us: int
    asked_us: int | None = None
    revoked_us: int | None = None
    known_to: set[Broker] = field(default_factory=set)


@dataclass
class KeyHistory:
    """What happened. Names only: ids and secrets are drawn by the system, not from the seed."""

    keys: list[Key] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    deliveries: list[str] = field(default_factory=list)
    """Who was let in."""

    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines)

    def note(self, now_us: int, *words: object) -> None:
        """Something happened."""
        self.lines.append(f"{(now_us - START_US) / SECOND:.6f} {' '.join(map(str, words))}")

    def fault(self, text: str) -> None:
        """A promise is broken."""
        self.lines.append(f"FAULT {text}")
        self.faults.append(Fault(0, text))


class Distant:
    """A coordinator whose calls take time: what another broker does meanwhile, it does."""

    def __init__(self, inner: Coordinator, world: World, fibers: Fibers) -> None:
        self._inner, self._world, self._fibers = inner, world, fibers

    def _travel(self) -> None:
        longest_us = 60_000 if self._world.chance(0.05) else 3_000
        self._fibers.pass_time(self._world.between(20, longest_us))

    def get(self, key: str) -> Fact | None:
        """See Coordinator.get."""
        self._travel()
        found = self._inner.get(key)
        self._travel()
        return found

    def put(self, key: str, value: bytes, revision: int | None = None) -> int:
        """See Coordinator.put."""
        self._travel()
        stored = self._inner.put(key, value, revision)
        self._travel()
        return stored


class KeyPeople:
    """Who makes, revokes and tries keys, and who forges them."""

    def __init__(
        self, world: World, cluster: Cluster, history: KeyHistory, *, forges: bool
    ) -> None:
        self._world, self._cluster, self._history = world, cluster, history
        self._outsider = cluster.facts.reach(world)[0]
        self._forges = forges
        self.stopped = False
        self._forged = ""
        self._asking: list[str] = []
        self._asked: dict[str, int] = {}
        """Names of which the end is asked for, and when that was answered last."""
        self._haste_us = world.random.choice([5_000, 50_000, 300_000])

    def begin(self) -> None:
        """Everybody begins; nothing is tried before there is a root."""
        self._ask(partial(self._make, name=ROOT, grants=["admin:*"]), self._then_all)

    def lose(self) -> None:
        """Nobody here keeps a connection."""

    def _then_all(self) -> None:
        if not any(key.name == ROOT for key in self._history.keys):
            self._world.after(100_000, self.begin)
            return
        for act in (*[self._administer] * self._world.between(2, 4), self._try, self._try):
            self._world.after(self._world.between(0, 200_000), act)
        if self._forges:
            self._world.after(self._world.between(0, 3 * SECOND), self._forge)

    def _ask(self, call: Callable[[Broker], None], then: Callable[[], None]) -> None:
        """Have something done at any broker; go on, whatever comes of it."""
        machine = self._world.random.choice(self._cluster.machines)
        connection = Connection(self._world, machine)
        over = [False]

        def go_on() -> None:
            if not over[0]:
                over[0] = True
                then()

        def arrive() -> None:
            if machine.broker is not None:
                call(machine.broker)
            connection.to_client(go_on)

        connection.on_break_here = go_on
        connection.to_broker(arrive)
        self._world.after(3 * SECOND, go_on)

    # --- at a broker ----------------------------------------------------------------------------

    def _make(self, broker: Broker, name: str, grants: list[str]) -> None:
        began_us = self._world.now_us
        try:
            key, text = broker.keys.create(name, grants)
        except (Refused, Unavailable) as error:
            self._history.note(self._world.now_us, "make", name, type(error).__name__)
            return
        self._history.note(self._world.now_us, "make", name, "done")
        made = Key(key.name, text, self._world.now_us)
        if name in self._asking or self._asked.get(name, 0) >= began_us:
            made.asked_us = self._world.now_us  # by its name, while it was being made
        self._history.keys.append(made)

    def _revoke(self, broker: Broker, named: str) -> None:
        """By the key's text, or by a name: whoever has it is revoked."""
        keys = [key for key in self._history.keys if named in (key.text, key.name)]
        for key in keys:
            key.asked_us = key.asked_us or self._world.now_us
        name = keys[0].name if keys else named
        self._asking.append(name)
        try:
            revoked = broker.keys.revoke(named)
        except (BadRequest, Refused, Unavailable) as error:  # BadRequest: another one was quicker
            self._history.note(self._world.now_us, "revoke", name, type(error).__name__)
            return
        finally:
            self._asked[name] = self._world.now_us
            self._asking.remove(name)
        self._history.note(self._world.now_us, "revoke", name, "done")
        for key in keys:
            if _id(key) == revoked.id:
                key.revoked_us = key.revoked_us or self._world.now_us

    def _try_one(self, broker: Broker, key: Key) -> None:
        now_us, name = self._world.now_us, key.name
        try:
            found = Gate(broker.keys).principal(key.text)
        except Unavailable:
            self._history.note(now_us, "try", name, "unconfirmed")
            return
        except Unauthenticated:
            self._history.note(now_us, "try", name, "refused")
            # What was forged may hide it from a broker that began later, until who knew it is back.
            should_know = not self._forges or broker in key.known_to
            if should_know and key.asked_us is None and now_us > key.made_us + BOUND_US:
                self._history.fault(
                    f"{name} was made, and is refused {_later(now_us, key.made_us)}"
                )
            return
        self._history.note(now_us, "try", name, "let in")
        key.known_to.add(broker)
        self._history.deliveries.append(name)
        root_us = self._history.keys[0].made_us
        if found is EVERYBODY and broker.keys.is_confirmed() and now_us > root_us + BOUND_US:
            self._history.fault("everybody is let in though there is a root")
        # A broker that was away since before puts back what it knows in place of what was forged,
        # and nobody who knew better may be alive at that moment.
        revoked_us = key.revoked_us
        if revoked_us is None or now_us <= revoked_us + BOUND_US or self._forges:
            return
        self._history.fault(f"{name} was revoked, and works {_later(now_us, revoked_us)}")

    # --- who asks -------------------------------------------------------------------------------

    def _administer(self) -> None:
        if self.stopped:
            return
        world = self._world
        what = world.random.random()
        some = [key for key in self._history.keys if key.name != ROOT and key.revoked_us is None]
        if what < 0.4 and some:
            named = world.random.choice(some).text
            call = partial(self._revoke, named=named)
        elif what < 0.5:  # so that a key of which nobody has the text does not keep its name
            call = partial(self._revoke, named=world.random.choice(NAMES))
        else:
            name = world.random.choice(NAMES)
            grants = ["admin:*"] if name == ADMIN else ["produce:a"]
            call = partial(self._make, name=name, grants=grants)
        self._ask(call, lambda: world.after(world.between(0, self._haste_us), self._administer))

    def _try(self) -> None:
        if self.stopped:
            return
        # Mostly what was made or revoked last.
        latest = self._history.keys[-6:] if self._world.chance(0.7) else self._history.keys
        key = self._world.random.choice(latest)
        self._ask(
            lambda broker: self._try_one(broker, key),
            lambda: self._world.after(self._world.between(0, 60_000), self._try),
        )

    def _forge(self) -> None:
        """Somebody writes to the coordinator who has no secret."""
        if self.stopped:
            return
        fact = self._outsider.get(PREFIX + "keys")
        assert fact is not None
        values: dict[str, Any] = json.loads(fact.value)
        key, text = new_key("forged", (Grant(Role.ADMIN, "*"),), 0, None)
        values["keys"].append(key.to_stored())
        self._outsider.put(fact.key, json.dumps(values).encode())
        self._history.note(self._world.now_us, "forge")
        self._forged = text
        self._ask(self._try_forged, lambda: None)
        self._world.after(self._world.between(SECOND, 4 * SECOND), self._forge)

    def _try_forged(self, broker: Broker) -> None:
        try:
            Gate(broker.keys).principal(self._forged)
        except (Unauthenticated, Unavailable):
            return
        self._history.fault("a forged key works")

    # --- the end --------------------------------------------------------------------------------

    def judge_end(self) -> None:
        """What all brokers know when nothing changes any more."""
        seen = []
        for machine in self._cluster.machines:
            assert machine.broker is not None, "a broker did not come back"
            keys = machine.broker.keys
            found = {key.id: key.name for key in keys.all()}
            seen.append(found)
            names = sorted(found.values())
            # Two who had to put back what each knew may have made one each.
            if len(set(names)) < len(names) and not self._forges:
                self._history.fault(f"keys of one name: {', '.join(names)}")
            for key in self._history.keys:
                lives = keys.is_live(_id(key))
                if key.asked_us is None and not lives:
                    self._history.fault(f"{key.name} was made and is lost")
                if key.revoked_us is not None and lives:
                    self._history.fault(f"{key.name} was revoked and works again")
        if any(one != seen[0] for one in seen):
            self._history.fault("brokers know different keys")


def _id(key: Key) -> str:
    return key.text.split("_")[1]


def _later(now_us: int, since_us: int) -> str:
    return f"{(now_us - since_us) / 1_000:.0f} ms later"


def simulate_keys(seed: int) -> Run:
    """Run a seed. What brokers keep in their data directories are files, in memory if there is a
    directory for that."""
    memory = Path("/dev/shm")
    with (
        TemporaryDirectory(dir=memory if memory.is_dir() else None) as place,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("XDG_STATE_HOME", place)
        return _simulate(seed, Path(place))


def _simulate(seed: int, place: Path) -> Run:
    world = World(seed)
    random = world.random
    cluster = Cluster(world, random.choice([2, 3, 4]), random.choice([0.0, 0.01]))

    def keys_of(machine: ClusterMachine, coordinator: Coordinator, fibers: Fibers) -> SharedKeys:
        distant, directory = Distant(coordinator, world, fibers), place / machine.name
        seal, copy = Seal(machine_secret(directory)), KeyCopy(directory)
        return SharedKeys(distant, LEASE_MS, FiberClock(fibers), seal, copy=copy)  # type: ignore[arg-type]

    cluster.keys_of = keys_of
    scenario = choose(world)
    for machine in cluster.machines:
        machine.on_start.append(scenario.make_topics)
        machine.start()
    history = KeyHistory()
    people = KeyPeople(world, cluster, history, forges=world.chance(0.3))
    world.after(world.between(0, SECOND), people.begin)
    end_us = world.now_us + random.choice([4, 8]) * SECOND
    faults = ClusterFaults(world, cluster, scenario, [people], [people], end_us)
    faults.begin()
    world.run(end_us)
    people.stopped = True
    faults.heal()
    world.run(world.now_us + SETTLE_US)
    if history.keys:
        people.judge_end()
    for machine in cluster.machines:
        machine.stop()
    world.run(world.now_us + 10 * SECOND)
    assert not any(machine.is_up for machine in cluster.machines), "a broker did not stop"
    return Run.of(world, history, history.faults, cluster.deaths)
