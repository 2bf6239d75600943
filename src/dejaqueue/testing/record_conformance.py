"""The suite that every record store passes: one test per promise of the contract.

    class TestRedis(RecordConformance):
        def make_store(self, address): return RedisRecordStore(url_of(address or SERVER.address))
        def server_address(self): return SERVER.address
        def restart_server(self): SERVER.kill(); SERVER.start()

Room: testing; shipped, for whoever writes a backend. Knows the contract alone.
Holds: a test names the duty it checks; all tests may share one server, since each has topics of
its own; nothing sleeps: what takes its time is tried again until it is there.
See: journal/records/interface.py, the numbered duties; cutting_proxy.py.
"""

# A test's name says what it checks.
# ruff: noqa: D102

from __future__ import annotations

import random
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from dejaqueue.clock import SystemClock, Wake
from dejaqueue.errors import DejaQError, Fenced, Unavailable
from dejaqueue.journal.records.interface import Bytes, RecordLog, RecordStore
from dejaqueue.testing.cutting_proxy import Cut, CuttingProxy

_Answer = TypeVar("_Answer")

PATIENCE_MS = 300_000
"""A server that was away may take so long to be there again, on a machine that is busy."""


def patiently(call: Callable[[], _Answer]) -> _Answer:
    """The answer of a call that may be repeated; tried again while it is Unavailable."""
    clock = SystemClock()
    until_ms = clock.now_ms() + PATIENCE_MS
    while True:
        try:
            return call()
        except Unavailable:
            if clock.now_ms() > until_ms:
                raise
            clock.wait_until(clock.now_us() + 50_000, Wake())


def asked(call: Callable[..., _Answer], *arguments: object) -> _Answer:
    """As `patiently`, of a call with arguments."""
    return patiently(lambda: call(*arguments))


def opened(store: RecordStore, topic: str, partition: int) -> RecordLog:
    """A log of a store; a server that makes it first may take as long as one that was away."""
    return patiently(lambda: store.open(topic, partition))


def refused(error: type[DejaQError], call: Callable[[], object]) -> None:
    """A failure if the call does not raise this error."""
    try:
        call()
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


def some_bytes(count: int, seed: int = 0) -> bytes:
    """Bytes that differ from those of another seed."""
    return random.Random(seed * 1_000_003 + count).randbytes(count)


def everything(log: RecordLog, first: int = 1) -> list[tuple[int, bytes]]:
    """All records from `first` on."""
    last = patiently(log.last)
    return patiently(lambda: list(log.read(first, last + 1)))


class RecordConformance(ABC):
    """Inherit, say how to make a store, and the suite is yours."""

    topic_bytes_max = 255
    """Longest name of a topic that the store is tried with."""
    asks_to_drop = True
    """Dropping asks the server; False = it is noted, and done with what is asked later."""

    @abstractmethod
    def make_store(self, address: tuple[str, int] | None = None) -> RecordStore:
        """A store on the server; with an address, on the server by way of that."""

    def server_address(self) -> tuple[str, int] | None:
        """(host, port) of the server; None if there is none that connections go to."""
        return None

    def restart_server(self) -> None:  # noqa: B027  a store without a server has none to restart
        """Kill the server as hard as can be and start it again; nothing if there is none."""

    @contextmanager
    def store(self, address: tuple[str, int] | None = None) -> Iterator[RecordStore]:
        """A store that is closed in the end."""
        made = patiently(lambda: self.make_store(address))
        try:
            yield made
        finally:
            made.close()

    def topic(self) -> str:
        """A name that no other test has."""
        return f"t.{secrets.token_hex(6)}"

    # --- duties 1, 2, 7 ------------------------------------------------------------------------

    def test_an_empty_log_has_nothing(self) -> None:
        with self.store() as store:
            log = opened(store, self.topic(), 0)
            assert log.last() == 0
            assert list(log.read(1, 100)) == []
            assert list(log.read(5, 5)) == []
            assert store.summary

    def test_records_come_back_as_they_were_appended(self) -> None:
        topic = self.topic()
        written: list[bytes] = []
        for turn in range(3):
            with self.store() as store:
                log = opened(store, topic, 3)
                assert log.last() == len(written)
                for count in (1, 7, 30):
                    new = [some_bytes(n, turn) for n in range(count)]  # the first is empty
                    pieces: list[list[Bytes]] = [[memoryview(one[:9]), b"", one[9:]] for one in new]
                    log.append(len(written), pieces)
                    written += new
                assert log.last() == len(written)
                assert everything(log) == list(enumerate(written, 1))
                log.close()

    def test_read_gives_the_range_asked_and_what_is_there(self) -> None:
        with self.store() as store:
            log = opened(store, self.topic(), 0)
            log.append(0, [[some_bytes(50, n)] for n in range(40)])
            for first, end in ((1, 2), (40, 41), (17, 31), (30, 90), (41, 50), (0, 3)):
                wanted = [(n, some_bytes(50, n - 1)) for n in range(first, end) if 1 <= n <= 40]
                assert list(log.read(first, end)) == wanted

    def test_a_record_may_have_the_most_bytes_and_many_go_at_once(self) -> None:
        topic = self.topic()
        with self.store() as store:
            log = opened(store, topic, 0)
            most = store.record_bytes_max
            assert most >= 1 << 16
            sizes = [most, 1, most - 1, *([max(most // 5, 1)] * 60), most]
            log.append(0, [[some_bytes(size, n)] for n, size in enumerate(sizes)])
            assert log.last() == len(sizes)
        with self.store() as store:
            log = opened(store, topic, 0)
            count = 0
            for number, record in log.read(1, len(sizes) + 1):
                count += 1
                assert number == count
                assert record == some_bytes(sizes[number - 1], number - 1)
            assert count == len(sizes)
            assert log.byte_count() > 0

    # --- duty 3: fencing -----------------------------------------------------------------------

    def test_an_append_elsewhere_than_behind_the_last_is_fenced(self) -> None:
        with self.store() as store:
            log = opened(store, self.topic(), 0)
            refused(Fenced, lambda: log.append(1, [[b"x"]]))
            log.append(0, [[b"one"], [b"two"]])
            for after in (0, 1, 3, 1 << 40):
                # The second would be right behind 1: it must not be there without the first.
                refused(Fenced, lambda after=after: log.append(after, [[b"x"], [b"y"]]))  # type: ignore[misc]
            assert everything(log) == [(1, b"one"), (2, b"two")]
            log.append(2, [[b"three"]])
            assert log.last() == 3

    def test_of_two_owners_that_race_one_gets_each_number(self) -> None:
        topic = self.topic()
        won: list[dict[int, bytes]] = [{}, {}]
        lost = [0, 0]
        failures: list[BaseException] = []
        together = threading.Barrier(2)

        def owner(who: int) -> None:
            try:
                with self.store() as store:
                    # Of two who make a log at once, one may find it half made.
                    log = opened(store, topic, 0)
                    for turn in range(40):
                        together.wait(PATIENCE_MS / 1_000)
                        after = patiently(log.last)
                        # Else one may be done before the other has looked.
                        together.wait(PATIENCE_MS / 1_000)
                        records = [b"%d %d %d" % (who, turn, n) for n in range(1 + turn % 2)]
                        try:
                            log.append(after, [[record] for record in records])
                        except Fenced:
                            lost[who] += 1
                            continue
                        except Unavailable:  # the other came behind a part of it
                            continue
                        won[who] |= dict(enumerate(records, after + 1))
            except BaseException as failure:  # noqa: BLE001  shown by the test
                failures.append(failure)
                together.abort()

        threads = [threading.Thread(target=owner, args=(who,)) for who in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert lost[0] + lost[1] > 0, "they never raced"
        assert not won[0].keys() & won[1].keys()
        with self.store() as store:
            found = dict(everything(opened(store, topic, 0)))
        assert list(found) == list(range(1, len(found) + 1))
        assert (won[0] | won[1]).items() <= found.items()

    # --- duty 5: no answer ---------------------------------------------------------------------

    def test_a_lost_answer_is_unavailable_and_can_be_found_out(self) -> None:
        server = self.server_address()
        if server is None:
            return
        outcomes = {self._lose(server, where) for where in ("answer", "request", "answer")}
        assert True in outcomes, "no append whose answer was lost had been made"

    def _lose(self, server: tuple[str, int], where: Cut) -> bool:
        """Lose the answer of an append; True if it had been made."""
        topic = self.topic()
        with (
            CuttingProxy(server) as proxy,
            self.store(proxy.address) as store,
            self.store() as other,
        ):
            log = opened(store, topic, 0)
            log.append(0, [[b"one"]])
            log.last()
            proxy.cut_next(where)
            refused(Unavailable, lambda: log.append(1, [[b"lost?"]]))
            observer = other.open(topic, 0)
            try:
                patiently(lambda: observer.append(1, [[b"barrier"]]))
            except Fenced:
                expected, was_made = b"lost?", True
            else:
                expected, was_made = b"barrier", False
            assert everything(observer) == [(1, b"one"), (2, expected)]
            patiently(lambda: log.append(2, [[b"three"]]))
            assert everything(log) == [(1, b"one"), (2, expected), (3, b"three")]
        return was_made

    def test_a_server_that_is_away_is_unavailable_until_it_is_back(self) -> None:
        server = self.server_address()
        if server is None:
            return
        with CuttingProxy(server) as proxy, self.store(proxy.address) as store:
            log = opened(store, self.topic(), 0)
            log.append(0, [[b"one"]])
            proxy.cut()
            calls: list[Callable[[], object]] = [
                lambda: log.append(1, [[b"two"]]),
                log.last,
                lambda: list(log.read(1, 2)),
                *([lambda: log.drop_before(1)] if self.asks_to_drop else []),
                lambda: store.put_object("x", b"1"),
                lambda: store.get_object("x"),
                lambda: store.object_names(""),
                lambda: store.drop_objects(["x"]),
            ]
            for call in calls:
                refused(Unavailable, call)
            refused(Unavailable, lambda: self.make_store(proxy.address))
            proxy.mend()
            assert patiently(log.last) == 1
            patiently(lambda: log.append(1, [[b"two"]]))
            assert everything(log) == [(1, b"one"), (2, b"two")]

    def test_what_was_acknowledged_outlives_a_killed_server(self) -> None:
        topic = self.topic()
        acknowledged = 0
        halfway, done = threading.Event(), threading.Event()
        failures: list[BaseException] = []

        def write() -> None:
            nonlocal acknowledged
            try:
                with self.store() as store:
                    log = opened(store, topic, 0)
                    after = 0
                    while not done.is_set() or after < 60:
                        new = range(after + 1, after + 2 + after % 3)
                        try:
                            log.append(after, [[b"%d" % number] for number in new])
                        except (Unavailable, Fenced):
                            after = patiently(log.last)
                            continue
                        after = acknowledged = new[-1]
                        if after >= 30:
                            halfway.set()
            except BaseException as failure:  # noqa: BLE001  shown by the test
                failures.append(failure)
                halfway.set()

        writer = threading.Thread(target=write)
        writer.start()
        halfway.wait(PATIENCE_MS / 1_000)
        self.restart_server()
        done.set()
        writer.join(PATIENCE_MS / 1_000)
        assert not failures, failures
        assert acknowledged >= 60
        with self.store() as store:
            log = opened(store, topic, 0)
            found = everything(log)
        assert len(found) >= acknowledged
        assert found == [(number, b"%d" % number) for number in range(1, len(found) + 1)]

    # --- duty 8: dropped records ---------------------------------------------------------------

    def test_dropped_records_go_and_the_numbers_stay(self) -> None:
        topic = self.topic()
        with self.store() as store:
            log = opened(store, topic, 0)
            log.append(0, [[some_bytes(2000, n)] for n in range(1, 31)])
            log.drop_before(0)
            log.drop_before(1)
            assert len(everything(log)) == 30
            log.drop_before(21)
            log.drop_before(11)
            kept = [(n, some_bytes(2000, n)) for n in range(21, 31)]
            assert everything(log, 21) == kept
            assert [pair for pair in everything(log) if pair[0] >= 21] == kept
            log.append(30, [[b"31"]])
            log.drop_before(32)
            assert log.last() == 31
        self.restart_server()
        with self.store() as store:
            log = opened(store, topic, 0)
            assert patiently(log.last) == 31
            refused(Fenced, lambda: patiently(lambda: log.append(0, [[b"x"]])))
            patiently(lambda: log.append(31, [[b"32"]]))
            assert everything(log, 32) == [(32, b"32")]
            log.drop_before(1000)
            assert log.last() == 32
            log.append(32, [[b"33"]])
            assert everything(log, 33) == [(33, b"33")]

    # --- duty 10: erased records ---------------------------------------------------------------

    def test_dropped_records_are_gone_when_that_is_answered(self) -> None:
        topic = self.topic()
        with self.store() as store:
            log = opened(store, topic, 0)
            log.append(0, [[some_bytes(2000, n)] for n in range(1, 31)])
            if not store.erases:
                return
            log.drop_before(21)
            assert [number for number, _ in log.read(1, 31)] == list(range(21, 31))
            for replica in log.replicas():
                assert all(number > 20 for number, _ in log.read_from(replica, 1, 31))
            log.drop_before(31)
            assert [number for number, _ in log.read(1, 31)] in ([], [30])

    # --- duty 9 --------------------------------------------------------------------------------

    def test_threads_read_while_another_appends(self) -> None:
        with self.store() as store:
            log = opened(store, self.topic(), 0)
            log.append(0, [[some_bytes(3000, n)] for n in range(1, 21)])
            known, done = 20, threading.Event()
            failures: list[BaseException] = []

            def reads(seed: int) -> None:
                mine = random.Random(seed)
                try:
                    while not done.is_set():
                        end = known + 1
                        first = mine.randrange(1, end)
                        end = min(end, first + mine.choice((1, 3, 50)))
                        wanted = [(n, some_bytes(3000, n)) for n in range(first, end)]
                        assert list(log.read(first, end)) == wanted
                except BaseException as failure:  # noqa: BLE001  shown by the test
                    failures.append(failure)

            threads = [threading.Thread(target=reads, args=(seed,)) for seed in (1, 2, 3)]
            for thread in threads:
                thread.start()
            for _ in range(30):
                log.append(known, [[some_bytes(3000, n)] for n in range(known + 1, known + 6)])
                known += 5
            done.set()
            for thread in threads:
                thread.join()
            assert not failures, failures

    def test_a_closed_log_is_unavailable(self) -> None:
        with self.store() as store:
            topic = self.topic()
            log = opened(store, topic, 0)
            log.append(0, [[b"one"]])
            log.close()
            log.close()
            refused(Unavailable, lambda: log.append(1, [[b"two"]]))
            refused(Unavailable, log.last)
            refused(Unavailable, lambda: list(log.read(1, 2)))
            assert opened(store, topic, 0).last() == 1
        store.close()

    # --- the store -----------------------------------------------------------------------------

    def test_logs_are_apart_and_drop_takes_those_of_a_topic(self) -> None:
        with self.store() as store:
            topic = self.topic()
            long = (topic + "x" * 300)[: self.topic_bytes_max]
            names = [(topic, 0), (topic, 65_534), (f"{topic}.a", 0), (f"{topic}-0", 0), (long, 1)]
            names += [(topic.replace(".", "_"), 0), (topic.upper(), 0), (f"={topic}", 0)]
            for name in names:
                opened(store, *name).append(0, [[repr(name).encode()]])
            for name in names:
                assert everything(opened(store, *name)) == [(1, repr(name).encode())]
            store.drop(topic)
            store.drop(f"{topic}.never.was")
            assert [opened(store, *name).last() for name in names] == [0, 0, 1, 1, 1, 1, 1, 1]
            opened(store, *names[0]).append(0, [[b"again"]])

    def test_objects_are_kept_and_replaced(self) -> None:
        folder = self.topic()
        sizes = (0, 1, 70_000, 3_000_001, 5)
        with self.store() as store:
            assert asked(store.get_object, f"{folder}/x") is None
            for size in sizes:
                asked(store.put_object, f"{folder}/x", memoryview(some_bytes(size)))
                assert asked(store.get_object, f"{folder}/x") == some_bytes(size)
            asked(store.put_object, f"{folder}/big", some_bytes(3_000_001))
        self.restart_server()
        with self.store() as store:
            assert asked(store.get_object, f"{folder}/x") == some_bytes(5)
            assert asked(store.get_object, f"{folder}/big") == some_bytes(3_000_001)
            asked(store.drop_objects, [f"{folder}/x", f"{folder}/never"])
            asked(store.drop_objects, [])
            assert asked(store.get_object, f"{folder}/x") is None
            assert asked(store.object_names, f"{folder}/") == [f"{folder}/big"]

    def test_objects_that_are_had_together_are_those_that_are_had_alone(self) -> None:
        folder = self.topic()
        contents = {f"{folder}/{size}": some_bytes(size) for size in (0, 1, 70_000, 3_000_001)}
        with self.store() as store:
            for name, content in contents.items():
                asked(store.put_object, name, content)
            found = asked(store.get_objects, [*contents, f"{folder}/never"])
            assert found.items() <= contents.items()
            assert found.keys() >= {f"{folder}/1", f"{folder}/70000"}
            assert asked(store.get_objects, []) == {}
            asked(store.put_object, f"{folder}/1", b"another")
            again = asked(store.get_objects, [f"{folder}/1"])
            # Where a copy that is behind was asked, it is left out.
            assert again.items() <= {f"{folder}/1": b"another"}.items()

    def test_objects_have_names_and_are_found_by_their_beginning(self) -> None:
        begin = self.topic()
        names = [
            f"{begin}{end}"
            for end in (
                "",
                ".",
                "/a",
                "/a.b",
                "/a-b",
                "/a/b",
                "/a/b/c_1",
                "/b//c",
                "0",
                "/a/",
                "/=a/b",
                "_x",
            )
        ]
        names.append((begin + "/long" + "n" * 500)[:500])
        with self.store() as store:
            for name in names:
                asked(store.put_object, name, name.encode())
            assert asked(store.object_names, begin) == sorted(names)
            for prefix in (f"{begin}/", f"{begin}/a", f"{begin}/a/", f"{begin}.", f"{begin}/b/"):
                wanted = sorted(name for name in names if name.startswith(prefix))
                assert asked(store.object_names, prefix) == wanted
            assert asked(store.object_names, f"{begin}nothing") == []
            for name in names:
                assert asked(store.get_object, name) == name.encode()
            asked(store.drop_objects, names[:-1])
            assert asked(store.object_names, begin) == names[-1:]

    def test_an_object_is_never_read_half_replaced(self) -> None:
        name = self.topic()
        contents = [some_bytes(size, size) for size in (2_500_000, 1_000_000, 10)]
        # What is small is replaced faster than it is read: a reader has to look again and again.
        turns = [turn % 3 for turn in range(9)] + [2] * 120
        with self.store() as store, self.store() as other:
            asked(store.put_object, name, contents[0])
            done = threading.Event()
            failures: list[BaseException] = []

            def reads() -> None:
                try:
                    while not done.is_set():
                        assert patiently(lambda: other.get_object(name)) in contents
                except BaseException as failure:  # noqa: BLE001  shown by the test
                    failures.append(failure)

            reader = threading.Thread(target=reads)
            reader.start()
            for turn in turns:
                patiently(lambda: store.put_object(name, contents[turn]))  # noqa: B023
            done.set()
            reader.join()
            assert not failures, failures
