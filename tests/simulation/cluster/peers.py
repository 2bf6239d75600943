"""How brokers of a simulated cluster speak to one another: late, and sometimes in vain."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from dejaqueue.broker.topic.peers import READ_AHEAD
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.testing.simulation.world import Life, World

if TYPE_CHECKING:
    from tests.simulation.cluster.machines import Cluster

TRAVEL_US_MAX = 3_000
ANSWER_US_MAX = 5_000_000


class SimulatedPeers:
    """One broker's way to the others.

    Args:
        life: of the broker.
    """

    def __init__(self, world: World, cluster: Cluster, life: Life) -> None:
        self._world, self._cluster, self._life = world, cluster, life

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        """See Peers.ask. What is lost on its way may have been done all the same."""
        world, answer = self._world, Future[dict[str, Any]]()
        there = next(m for m in self._cluster.machines if url == f"dejaq://{m.name}:1")
        is_lost = world.chance(self._cluster.trouble)

        def fail() -> None:
            if not answer.done():
                answer.set_exception(Unavailable("no answer", 100))

        def back(answered: Future[dict[str, Any]]) -> None:
            def come() -> None:
                if answer.done():
                    return
                wrong = answered.exception()
                if wrong is not None:
                    answer.set_exception(wrong)
                else:
                    answer.set_result(answered.result())

            if not is_lost:
                world.after(world.between(20, TRAVEL_US_MAX), come, self._life)

        def arrive() -> None:
            try:
                broker = there.require()
                if action == READ_AHEAD:
                    told: Future[dict[str, Any]] = Future()
                    told.set_result({"is_read": broker.read_ahead(body["topic"])})
                    back(told)
                    return
                broker.transactions.hear(action, body).add_done_callback(back)
            except DejaQError as error:
                failed: Future[dict[str, Any]] = Future()
                failed.set_exception(error)
                back(failed)

        world.after(ANSWER_US_MAX, fail, self._life)
        if there.is_up:
            world.after(world.between(20, TRAVEL_US_MAX), arrive, there.life)
        return answer
