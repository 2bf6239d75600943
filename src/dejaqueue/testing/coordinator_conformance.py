"""The suite that every coordinator passes: one test per promise of the contract.

    class TestEtcd(ServedCoordinatorConformance):
        def url(self, port=None): return f"etcd://127.0.0.1:{port or self.port}/{self.name}"

Room: testing; shipped, for whoever writes a backend. Uses the contract alone.
Holds: a test names the duty it checks; no test knows what is behind the coordinator. Time is the
server's: tests measure elapsed time, and wait for what is to come, not for a while.
See: coordinator/interface.py, the numbered duties; keys_conformance.py, what API keys need.
"""

# A test's name says what it checks.
# ruff: noqa: D102

from __future__ import annotations

import multiprocessing
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from dejaqueue.coordinator.interface import Conflict, Coordinator
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.testing.cutting_proxy import CuttingProxy
from dejaqueue.testing.keys_conformance import KeysConformance, ServedKeysConformance

PATIENCE_S = 180.0
"""How long a test waits for what must come; far more than it takes."""
STALL_S = 3.0
"""How long a busy machine, or its disk, may stand still."""
AWAY_S = 15.0
"""A call to a server that is away gives up within this."""


class Bell:
    """A bell that a test hears."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def __call__(self) -> None:
        self._rung.set()

    def forget(self) -> None:
        """Forget past rings."""
        self._rung.clear()

    def rings_within(self, seconds: float) -> bool:
        """True if it has rung or rings soon."""
        return self._rung.wait(seconds)


def count_up(coordinator: Coordinator, key: str, times: int) -> list[int]:
    """Count a fact up by compare-and-put; the revisions that this one made."""
    made: list[int] = []
    while len(made) < times:
        fact = coordinator.get(key)
        value, revision = (int(fact.value), fact.revision) if fact else (0, 0)
        try:
            made.append(coordinator.put(key, b"%d" % (value + 1), revision))
        except Conflict:
            continue
    return made


def _count_up_in_process(url: str, key: str, times: int) -> None:
    coordinator = open_coordinator(url)
    count_up(coordinator, key, times)
    coordinator.close()


def refuses(error: type[Exception], call: Callable[[], object]) -> bool:
    """True if the call raises this."""
    try:
        call()
    except error:
        return True
    return False


def _until(is_so: Callable[[], bool], seconds: float = PATIENCE_S) -> float:
    """Ask again and again until it is so; the instant of elapsed time when it was."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not is_so():
        assert time.monotonic() < end, "it did not come"
        pause.wait(0.01)
    return time.monotonic()


class CoordinatorConformance(KeysConformance):
    """Duties 1 to 5, on one server that stays.

    Attributes:
        ttl_late_ms: how much later than its ttl a fact may vanish.
        is_shared: other processes can open the same URL.
        race_times: how often each racing writer counts up.
    """

    ttl_late_ms = 1_500
    is_shared = True
    race_times = 25

    @abstractmethod
    def url(self) -> str:
        """The same for one test, another for the next: nothing of other tests is there."""

    @contextmanager
    def opened(self, count: int) -> Iterator[list[Coordinator]]:
        """So many coordinators on the same facts."""
        with ExitStack() as stack:
            opened = []
            for _ in range(count):
                opened.append(open_coordinator(self.url()))
                stack.callback(opened[-1].close)
            yield opened

    # Duty 1: keys, values, revisions.

    def test_1_a_fact_comes_back_as_it_was_put(self) -> None:
        with self.opened(2) as (one, other):
            every_byte = bytes(range(256))
            long_key = "k" * 500
            for key, value in (("a", b""), ("b/c-d_e.F", every_byte), (long_key, b"long")):
                revision = one.put(key, value)
                fact = other.get(key)
                assert fact is not None
                assert (fact.key, fact.value, fact.revision) == (key, value, revision)
                assert revision > 0
            assert other.get("b/c") is None
            assert one.summary

    def test_1_a_value_may_be_a_megabyte(self) -> None:
        with self.opened(2) as (one, other):
            values = {f"big/{n}": bytes([n]) * (1 << 20) for n in range(5)}
            for key, value in values.items():
                one.put(key, value)
            assert {fact.key: fact.value for fact in other.list("big/")} == values
            fact = other.get("big/3")
            assert fact is not None
            assert fact.value == values["big/3"]
            assert refuses(BadRequest, lambda: one.put("big/6", bytes((1 << 20) + 1)))

    def test_1_revisions_grow_across_deletion(self) -> None:
        with self.opened(2) as (one, other):
            seen = [one.put("a", b"1"), other.put("a", b"2")]
            assert one.delete("a")
            seen.append(other.put("a", b"3", 0))
            one.put("other", b"")
            assert other.delete("a", seen[-1])
            assert not one.delete("a")
            seen.append(one.put("a", b"4"))
            assert seen == sorted(set(seen))

    def test_1_keys_are_told_apart_to_the_letter(self) -> None:
        with self.opened(1) as (one,):
            keys = ["A", "a", "a-b", "a.b", "a/b", "a/b/c", "a_b", "aXb", "a0", "a00"]
            for key in keys:
                one.put(key, key.encode())
            assert [fact.key for fact in one.list("")] == sorted(keys)
            assert [fact.key for fact in one.list("a_")] == ["a_b"]
            assert [fact.key for fact in one.list("a.")] == ["a.b"]
            assert [fact.key for fact in one.list("a/b")] == ["a/b", "a/b/c"]
            assert one.list("b") == []
            assert all(fact.value == fact.key.encode() for fact in one.list(""))

    def test_1_what_no_server_would_take_is_refused(self) -> None:
        with self.opened(1) as (one,):
            assert refuses(BadRequest, lambda: one.get(""))
            assert refuses(BadRequest, lambda: one.put("a b", b""))
            assert refuses(BadRequest, lambda: one.put("k" * 501, b""))
            assert refuses(BadRequest, lambda: one.list("ä"))
            assert refuses(BadRequest, lambda: one.put("a", b"", ttl_ms=499))
            assert one.list("") == []

    # Duty 2: compare and change.

    def test_2_a_change_upon_another_revision_changes_nothing(self) -> None:
        with self.opened(2) as (one, other):
            assert refuses(Conflict, lambda: one.put("a", b"x", 7))
            assert refuses(Conflict, lambda: one.delete("a", 7))
            first = one.put("a", b"1", 0)
            assert refuses(Conflict, lambda: other.put("a", b"x", 0))
            second = other.put("a", b"2", first)
            assert refuses(Conflict, lambda: one.put("a", b"x", first))
            assert refuses(Conflict, lambda: one.put("a", b"x", first, ttl_ms=1_000))
            assert refuses(Conflict, lambda: one.delete("a", first))
            assert refuses(Conflict, lambda: one.delete("a", 0))
            fact = one.get("a")
            assert fact is not None
            assert (fact.value, fact.revision) == (b"2", second)
            assert one.delete("a", second)
            assert refuses(Conflict, lambda: one.put("a", b"x", second))
            assert not one.delete("a", 0)
            assert one.get("a") is None

    def test_2_of_racing_threads_one_wins_each_time(self) -> None:
        with self.opened(3) as coordinators:
            made: list[int] = []

            def race(coordinator: Coordinator) -> None:
                made.extend(count_up(coordinator, "count", self.race_times))

            # Two threads on one object, and two with objects of their own.
            racers = [*coordinators, coordinators[0]]
            threads = [threading.Thread(target=race, args=(c,)) for c in racers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
            fact = coordinators[0].get("count")
            assert fact is not None
            assert int(fact.value) == 4 * self.race_times
            assert len(set(made)) == 4 * self.race_times
            assert fact.revision == max(made)

    def test_2_of_racing_processes_one_wins_each_time(self) -> None:
        if not self.is_shared:
            return
        context = multiprocessing.get_context("spawn")
        arguments = (self.url(), "count", self.race_times)
        racers = [context.Process(target=_count_up_in_process, args=arguments) for _ in range(2)]
        with self.opened(1) as (one,):
            for racer in racers:
                racer.start()
            count_up(one, "count", self.race_times)
            for racer in racers:
                racer.join(PATIENCE_S)
                assert racer.exitcode == 0
            fact = one.get("count")
            assert fact is not None
            assert int(fact.value) == 3 * self.race_times

    # Duty 3: what was acknowledged is seen.

    def test_3_what_one_has_put_the_others_see_at_once(self) -> None:
        with self.opened(3) as (one, other, third):
            for n in range(30):
                revision = one.put("a", b"%d" % n)
                found = other.get("a")
                assert found is not None
                assert (found.value, found.revision) == (b"%d" % n, revision)
                assert [fact.value for fact in third.list("a")] == [b"%d" % n]
            other.delete("a")
            assert one.get("a") is None
            assert third.list("a") == []

    def test_3_a_list_of_many_is_whole(self) -> None:
        with self.opened(1) as (one,):
            keys = [f"owner/topic-{n % 7}/{n:04}" for n in range(230)]
            for key in keys:
                one.put(key, b"x" * 20)
            assert [fact.key for fact in one.list("owner/")] == sorted(keys)
            assert len(one.list("owner/topic-3/")) == len([k for k in keys if "topic-3" in k])

    # Duty 4: ttl.

    def test_4_a_ttl_is_kept(self) -> None:
        parts = (self._vanishes_and_rings, self._stays_while_renewed, self._is_of_the_last_put)
        with ThreadPoolExecutor(len(parts)) as threads:  # side by side: all of them mostly wait
            for part in [threads.submit(part) for part in parts]:
                part.result()

    def _vanishes_and_rings(self) -> None:
        with self.opened(2) as (one, other):
            bell = Bell()
            other.watch("gone/", bell)
            before = time.monotonic()
            first = one.put("gone/a", b"x", ttl_ms=700)
            after = time.monotonic()
            _until(lambda: bell.rings_within(0))
            bell.forget()
            gone = _until(lambda: other.get("gone/a") is None)
            assert gone - before >= 0.7
            assert gone - after <= (700 + self.ttl_late_ms) / 1_000 + STALL_S
            assert bell.rings_within(self.ttl_late_ms / 1_000 + PATIENCE_S)
            assert other.list("gone/") == []
            assert one.put("gone/a", b"y", 0) > first

    def _stays_while_renewed(self) -> None:
        with self.opened(2) as (one, other):
            revision = one.put("member/a", b"x", 0, ttl_ms=1_500)
            other.put("other", b"stays")
            start = time.monotonic()
            pause = threading.Event()
            while time.monotonic() < start + 1.8 + self.ttl_late_ms / 1_000:
                last_before = time.monotonic()
                assert one.renew("member/a")
                pause.wait(0.2)
            fact = other.get("member/a")
            assert fact is not None
            assert (fact.value, fact.revision) == (b"x", revision)
            gone = _until(lambda: other.get("member/a") is None)
            assert gone - last_before >= 1.5
            assert not one.renew("member/a")
            assert other.get("other") is not None

    def _is_of_the_last_put(self) -> None:
        with self.opened(2) as (one, other):
            one.put("last/stays", b"1", ttl_ms=500)
            one.put("last/stays", b"2")
            one.put("last/goes", b"1")
            one.put("last/goes", b"2", ttl_ms=500)
            _until(lambda: other.get("last/goes") is None)
            one.put("last/later", b"", ttl_ms=500)
            _until(lambda: other.get("last/later") is None)
            fact = other.get("last/stays")
            assert fact is not None
            assert fact.value == b"2"

    def test_4_only_who_put_a_fact_renews_it(self) -> None:
        with self.opened(2) as (one, other):
            assert not one.renew("member/a")
            first = one.put("member/a", b"one", ttl_ms=60_000)
            assert one.renew("member/a")
            second = other.put("member/a", b"two", first, ttl_ms=60_000)
            assert not one.renew("member/a")
            assert other.renew("member/a")
            assert one.delete("member/a", second)
            assert not other.renew("member/a")
            assert other.get("member/a") is None

    # Duty 5: watch.

    def test_5_a_bell_rings_after_every_change_below_its_prefix(self) -> None:
        with self.opened(2) as (one, other):
            bell = Bell()
            other.watch("owner/", bell)
            late_s = other.poll_ms / 1_000 + PATIENCE_S
            for n in range(5):
                bell.forget()
                if n % 4 == 3:
                    one.delete("owner/a")
                else:
                    one.put("owner/a", b"%d" % n)
                assert bell.rings_within(late_s), f"change {n} did not ring"

    def test_5_no_change_of_a_busy_time_is_missed(self) -> None:
        with self.opened(3) as (one, other, listener):
            heard = threading.Condition()
            rung = [0]

            def bell() -> None:
                with heard:
                    rung[0] += 1
                    heard.notify_all()

            listener.watch("", bell)
            writers = [
                threading.Thread(target=count_up, args=(c, f"count/{n}", self.race_times))
                for n, c in enumerate((one, other))
            ]
            for thread in writers:
                thread.start()
            end = time.monotonic() + 60
            # As a broker listens: look, then wait for the next ring.
            while True:
                before = rung[0]
                values = [int(fact.value) for fact in listener.list("count/")]
                if values == [self.race_times] * 2:
                    break
                with heard:
                    assert heard.wait_for(lambda: rung[0] > before, end - time.monotonic())  # noqa: B023
            for thread in writers:
                thread.join(PATIENCE_S)

    def test_5_a_closed_watch_rings_no_more(self) -> None:
        with self.opened(2) as (one, other):
            closed, open_still = Bell(), Bell()
            watch = other.watch("", closed)
            other.watch("", open_still)
            one.put("a", b"1")
            assert closed.rings_within(PATIENCE_S)
            watch.close()
            watch.close()
            closed.forget()
            open_still.forget()
            one.put("a", b"2")
            assert open_still.rings_within(PATIENCE_S)
            assert not closed.rings_within(0.05)

    def test_5_closing_leaves_the_facts(self) -> None:
        with self.opened(1) as (keeper,):
            with self.opened(1) as (one,):
                one.put("a", b"1")
                one.put("b", b"1", ttl_ms=60_000)
            assert [fact.key for fact in keeper.list("")] == ["a", "b"]


class ServedCoordinatorConformance(CoordinatorConformance, ServedKeysConformance):
    """All duties, on a server that can be stopped, and a network that fails."""

    @abstractmethod
    def url(self, port: int | None = None) -> str:
        """The URL of this test's facts; `port` in place of the server's own."""

    @abstractmethod
    def port(self) -> int:
        """Where the server listens now."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the server, the hard way."""

    @abstractmethod
    def start(self) -> None:
        """Start it again on what it has stored, on the same port."""

    @contextmanager
    def through_proxy(self) -> Iterator[tuple[CuttingProxy, Coordinator]]:
        """A coordinator whose connections go through a proxy."""
        with CuttingProxy(self.port()) as proxy:
            coordinator = open_coordinator(self.url(proxy.port))
            try:
                yield proxy, coordinator
            finally:
                coordinator.close()

    def test_5_a_restart_loses_no_fact_and_no_bell(self) -> None:
        with self.opened(2) as (one, other):
            bell = Bell()
            first = one.put("a", b"1")
            one.put("b", b"1")
            one.delete("b")
            other.watch("", bell)
            _until(lambda: bell.rings_within(0) or not one.put("warm", b""))
            self.stop()
            before = time.monotonic()
            assert refuses(Unavailable, lambda: one.get("a"))
            assert refuses(Unavailable, lambda: one.put("a", b"lost?", first))
            assert time.monotonic() - before < 2 * AWAY_S
            bell.forget()
            self.start()
            assert bell.rings_within(PATIENCE_S), "the server is back and nobody was told"
            _until(lambda: not refuses(Unavailable, lambda: one.get("a")))
            fact = one.get("a")
            assert fact is not None
            assert fact.revision == first
            assert one.get("b") is None
            bell.forget()
            assert one.put("a", b"2", first) > first
            assert bell.rings_within(PATIENCE_S)

    def test_6_a_lost_answer_is_said_and_what_was_done_is_found(self) -> None:
        with self.opened(1) as (other,), self.through_proxy() as (proxy, one):
            revision = one.put("a", b"1", 0)
            proxy.lose_answers()
            assert refuses(Unavailable, lambda: one.put("a", b"2", revision))
            proxy.mend()
            _until(lambda: not refuses(Unavailable, lambda: one.get("a")))
            fact = one.get("a")
            assert fact == other.get("a")
            assert fact is not None
            # It was done once, or not at all: whoever compares knows which.
            if fact.value == b"1":
                assert fact.revision == revision
            else:
                assert fact.value == b"2"
                assert refuses(Conflict, lambda: one.put("a", b"3", revision))
            one.put("a", b"3", fact.revision)

    def test_6_a_network_that_is_gone_is_said_in_bounded_time(self) -> None:
        with self.opened(1) as (other,), self.through_proxy() as (proxy, one):
            revision = one.put("a", b"1", 0)
            proxy.cut()
            assert refuses(Unavailable, lambda: one.put("b", b"never"))
            assert refuses(Unavailable, lambda: one.get("a"))
            assert refuses(Unavailable, lambda: one.list(""))
            assert refuses(Unavailable, lambda: one.delete("a"))
            proxy.mend()
            _until(lambda: not refuses(Unavailable, lambda: one.get("a")))
            proxy.hang()
            before = time.monotonic()
            assert refuses(Unavailable, lambda: one.put("b", b"never"))
            assert time.monotonic() - before < AWAY_S
            proxy.cut()  # what hung does not arrive later
            proxy.mend()
            _until(lambda: not refuses(Unavailable, lambda: one.get("a")))
            assert other.get("b") is None
            assert one.put("a", b"2", revision) > revision

    def test_5_what_changed_while_the_network_was_gone_rings(self) -> None:
        with self.opened(1) as (other,), self.through_proxy() as (proxy, one):
            bell = Bell()
            one.watch("", bell)
            other.put("a", b"1")
            assert bell.rings_within(PATIENCE_S)
            for fail in (proxy.cut, proxy.hang):
                fail()
                other.put("a", b"2")
                bell.forget()
                proxy.cut()
                proxy.mend()
                assert bell.rings_within(PATIENCE_S)
                bell.forget()
                # Rings of the reconnection may still come; each change has one behind it anyway.
                other.put("a", b"3")
                assert bell.rings_within(PATIENCE_S)

    def test_4_what_is_cut_off_vanishes_for_the_others(self) -> None:
        with self.opened(1) as (other,), self.through_proxy() as (proxy, one):
            one.put("member/a", b"", ttl_ms=1_000)
            before = time.monotonic()
            assert one.renew("member/a")
            proxy.cut()
            assert refuses(Unavailable, lambda: one.renew("member/a"))
            gone = _until(lambda: other.get("member/a") is None)
            assert gone - before >= 1.0
            proxy.mend()
            _until(lambda: not refuses(Unavailable, lambda: one.get("member/a")))
            assert not one.renew("member/a")
