"""`python -m tests.crash.disasters --count 500 --seed 1`: what is restored after disasters.

A real broker under load archives as it goes. It is killed, its store goes away and comes back, it
starts again; then its directory is lost, or an older copy of it is put in place, and a part of the
archive may be rotten, cut short or missing. It is restored by the command, which may have a wrong
key at first, and be killed; and what is there is compared with what was acknowledged and when.

Every choice comes from a number, which is printed with what went wrong. What the machine does
meanwhile does not.
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dejaqueue import Client, DejaQError
from dejaqueue.backup.archive import Archive
from dev.reaper import start_reaper
from tests.backups import reach_ms
from tests.crash.broker_process import BrokerProcess
from tests.object_store import S3Server
from tests.patience import PATIENCE_SECONDS, until

FAR = 3_600
INTERVAL_MS = 50
DAMAGES = ("none", "none", "flipped", "short", "missing")
LOSSES = ("deleted", "deleted", "older copy")


def now_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251 - the broker's is the machine's


class Store:
    """An object store of S3's protocol in this process, which can be away; what it has, stays."""

    def __init__(self) -> None:
        self._port = 0
        self._server: Any = None
        self.start()

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._server.start()
        host, self._port = self._server.get_host_and_port()
        self.s3 = S3Server(f"http://{host}:{self._port}")

    def stop(self) -> None:
        self._server.stop()


@dataclass
class Plan:
    """What happens, all of it from a number."""

    seed: int
    in_bucket: bool = False
    is_encrypted: bool = False
    load_seconds: float = 0.0
    restarts: bool = False
    goes_away: bool = False
    backs_up_again: bool = False
    loss: str = ""
    damage: str = ""
    processes: int = 0
    restores_killed: list[float] = field(default_factory=list)
    """After how many seconds each try is killed."""

    def __post_init__(self) -> None:
        draw = random.Random(self.seed)
        self.in_bucket = draw.random() < 0.3
        self.is_encrypted = draw.random() < 0.4
        self.load_seconds = draw.uniform(0.3, 1.5)
        self.restarts = draw.random() < 0.4
        self.goes_away = self.in_bucket and draw.random() < 0.5
        self.backs_up_again = draw.random() < 0.4
        self.loss = draw.choice(LOSSES)
        self.damage = "none" if self.in_bucket else draw.choice(DAMAGES)
        self.restores_killed = [draw.uniform(0.5, 2.5) for _ in range(draw.choice([0, 0, 1, 2]))]
        self.processes = 2 if draw.random() < 0.3 else 0
        self.draw = draw


class Load:
    """What was sent, acked, and committed, each with when its answer had come.

    Goes on over starts of the broker; what got no answer may be there or not.
    """

    def __init__(self, url: str) -> None:
        self.sent: list[tuple[int, bytes]] = []
        self.acked: list[tuple[int, bytes]] = []
        self.committed: list[tuple[int, bytes]] = []
        self.tried_acks: set[bytes] = set()
        self._url, self._ends = url, threading.Event()
        works = (self._send, self._consume, self._transact)
        self._threads = [threading.Thread(target=self._again, args=(one,)) for one in works]
        for thread in self._threads:
            thread.start()

    def _again(self, work: Callable[[Client], None]) -> None:
        while not self._ends.is_set():
            try:
                with Client(self._url) as client:
                    work(client)
            except DejaQError:
                self._ends.wait(0.05)

    def _send(self, client: Client) -> None:
        while not self._ends.is_set():
            payload = b"single-%d" % random.getrandbits(60)
            client.send("singles", payload, delay=FAR if random.random() < 0.5 else 0)
            self.sent.append((now_ms(), payload))

    def _consume(self, client: Client) -> None:
        while not self._ends.is_set():
            with client.consume("singles", idle_ms=200, prefetch=20) as messages:
                for message in messages:
                    self.tried_acks.add(message.payload)
                    message.ack(wait=True)
                    self.acked.append((now_ms(), message.payload))
                    if self._ends.is_set():
                        break

    def _transact(self, client: Client) -> None:
        while not self._ends.is_set():
            payload = b"pair-%d" % random.getrandbits(60)
            with client.transaction() as transaction:
                transaction.send("left", payload, delay=FAR)
                transaction.send("right", payload, delay=FAR)
            self.committed.append((now_ms(), payload))

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()


class Disaster:
    """One plan, done; what is wrong is an AssertionError that says what."""

    def __init__(self, plan: Plan, store: Store, place: Path) -> None:
        self._plan, self._store, self._place = plan, store, place
        self._where = str(place / "backups")
        if plan.in_bucket:
            self._where = f"{store.s3.new_bucket()}/dejaq"
        self._master = self._key("master.key")
        self._said = ""
        self.lag_ms = 0
        """What was lost: from what is restored to the kill."""

    def _key(self, name: str) -> str:
        path = self._place / name
        path.touch(mode=0o600)
        path.write_text(base64.b64encode(os.urandom(32)).decode())
        return f"file:{path}"

    def _broker(self, name: str, **settings: object) -> BrokerProcess:
        if self._plan.is_encrypted:
            settings["encryption__master_key"] = self._master
        broker = BrokerProcess(
            self._place / name,
            self._place / f"{name}.log",
            journal__segment_bytes=1 << 18,
            journal__snapshot_entries=200,
            **settings,
        )
        broker.start()
        return broker

    def run(self) -> None:
        """Do it."""
        plan = self._plan
        broker = self._broker(
            "data",
            backup__url=self._where,
            backup__archive_interval_ms=INTERVAL_MS,
            backup__interval_ms=1_500 if plan.backs_up_again else 86_400_000,
            **({"server__processes": plan.processes} if plan.processes else {}),
        )
        try:
            load, killed_ms = self._under_load(broker)
        finally:
            broker.kill()
        if plan.loss == "older copy":
            self._put_the_copy(broker)
        shutil.rmtree(self._place / "data", ignore_errors=True)
        mended = self._damage()
        found = self._restored()
        if found is None:
            mended()
            found = self._restored()
            assert found is not None, f"refused, though the damage was mended: {self._said}"
        self.lag_ms = max(killed_ms - found["cut_ms"], 0)
        self._check(load, found["cut_ms"])

    def _under_load(self, broker: BrokerProcess) -> tuple[Load, int]:
        """What was acknowledged, and when the broker was killed."""
        plan = self._plan
        with Client(broker.url) as client:
            client.create_topic("singles", partitions=3)
            for name in ("left", "right"):
                client.create_topic(name, partitions=2)
        until(lambda: bool(Archive.open(self._where, make=True).ids()), "the first backup")
        load = Load(broker.url)
        try:
            threading.Event().wait(plan.load_seconds)
            if plan.goes_away:
                self._store.stop()
                threading.Event().wait(plan.load_seconds)
                self._store.start()
            if plan.restarts:
                broker.kill()
                broker.start()
            if plan.loss == "older copy":
                broker.stop()
                shutil.copytree(self._place / "data", self._place / "older")
                broker.start()
            threading.Event().wait(plan.load_seconds)
            if plan.loss == "older copy":  # or it would not be known to be one
                sent_ms = now_ms()
                until(lambda: reach_ms(self._where) > sent_ms, "more is archived than it has")
            killed_ms = now_ms()
            broker.kill()
        finally:
            load.end()
        return load, killed_ms

    def _put_the_copy(self, broker: BrokerProcess) -> None:
        """An older copy starts, and is not taken for what was there: its archive does not go on."""
        shutil.rmtree(self._place / "data")
        shutil.move(self._place / "older", self._place / "data")
        known = set(Archive.open(self._where).ids())
        broker.start()
        with Client(broker.url) as client:
            client._action("backup", {"url": self._where})
            until(lambda: client.backup_progress()["state"] != "running", "the backup ends")
            progress = client.backup_progress()
        broker.kill()
        assert "an old copy was put in place" in progress.get("error", ""), progress
        assert set(Archive.open(self._where).ids()) == known

    def _damage(self) -> Callable[[], None]:
        """Damage one file of the archive; how to mend it."""
        plan = self._plan
        if plan.damage == "none":
            return lambda: None
        root = Path(self._where)
        # A file that a killed process was writing has no name yet, and nobody reads it.
        there = (one for one in root.rglob("*") if not one.name.startswith(".draft"))
        files = sorted(one for one in there if one.is_file() and one.stat().st_size)
        path = plan.draw.choice(files)
        content = path.read_bytes()
        is_named = self._is_named(path)
        at = plan.draw.randrange(len(content))
        if plan.damage == "flipped":
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        elif plan.damage == "short":
            path.write_bytes(content[:at])
        else:
            path.unlink()
        verified = self._command("backup", "verify", self._where)
        assert verified.returncode in (0, 5), verified.stderr
        if plan.damage != "missing" and is_named:
            assert verified.returncode == 5, f"{plan.damage} {path}: {verified.stdout}"

        def mend() -> None:
            path.write_bytes(content)

        return mend

    def _is_named(self, path: Path) -> bool:
        """False for a piece of a backup that was not done when its broker was killed: nobody reads
        it, and a backup that needs it stores it again."""
        archive = Archive.open(self._where)
        pieces = {piece.name for one in archive.ids() for piece in archive.manifest(one).pieces}
        return path.parent.parent.name != "pieces" or path.name in pieces

    def _restored(self) -> dict[str, Any] | None:
        """What the command says of a restore that is done; None = it refuses what is damaged."""
        target = str(self._place / "new")
        given = ["restore", self._where, "--data", target, "--json"]
        if self._plan.is_encrypted:
            wrong = self._command(*given, "--set", f"encryption.master_key={self._key('wrong')}")
            if self._plan.damage == "none":
                assert wrong.returncode, "with a wrong key"
                assert "master key" in wrong.stderr, wrong.stderr
            given += ["--set", f"encryption.master_key={self._master}"]
        for seconds in self._plan.restores_killed:
            with self._started(*given) as process:
                try:
                    process.wait(seconds)
                except subprocess.TimeoutExpired:
                    process.kill()
                else:
                    break
        if (self._place / "new").exists() and self._plan.restores_killed:
            self._half_restored_is_refused()
        done = self._command(*given)
        self._said = done.stderr
        if done.returncode:
            if "there already" in done.stderr:
                return self._report_of_before(given)
            assert self._plan.damage != "none", done.stderr
            return None
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _report_of_before(self, given: list[str]) -> dict[str, Any]:
        """A restore that ended just before it was to be killed: do it again elsewhere."""
        shutil.rmtree(self._place / "new")
        done = self._command(*given)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _half_restored_is_refused(self) -> None:
        """A broker starts on what is whole alone."""
        try:
            broker = self._broker("new")
        except AssertionError as refused:
            assert "restore" in str(refused), refused
        else:
            broker.kill()

    @contextmanager
    def _started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "dejaqueue", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def _command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        with self._started(*arguments) as process:
            out, said = process.communicate(timeout=PATIENCE_SECONDS)
        return subprocess.CompletedProcess(arguments, process.returncode, out, said)

    def _check(self, load: Load, until_ms: int) -> None:
        broker = self._broker("new")
        try:
            with Client(broker.url) as client:
                there = _payloads(client, "singles")
                until(
                    lambda: _payloads(client, "left") == _payloads(client, "right"),
                    "transactions are whole",
                )
                pairs = _payloads(client, "left")
        finally:
            broker.kill()
        assert len(there) == len(set(there)), "twice"
        assert len(pairs) == len(set(pairs)), "a transaction twice"
        wanted = {one for at_ms, one in load.sent if at_ms < until_ms} - load.tried_acks
        lost = wanted - set(there)
        assert not lost, f"{len(lost)} of {len(wanted)} acknowledged before {until_ms} are lost"
        back = {one for at_ms, one in load.acked if at_ms < until_ms} & set(there)
        assert not back, f"{len(back)} that were acked before {until_ms} are back"
        lost = {one for at_ms, one in load.committed if at_ms < until_ms} - set(pairs)
        assert not lost, f"{len(lost)} transactions committed before {until_ms} are lost"


def _payloads(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = client.peek(topic, limit=1_000_000).column("payload").to_pylist()
    return sorted(found)


def main() -> int:
    """Do as many as asked for; the exit status says whether all came out well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    start_reaper()
    for name in ("werkzeug", "dejaqueue"):  # each request, each connection that is lost
        logging.getLogger(name).setLevel(logging.ERROR)
    store, lags, failed = Store(), [], 0
    os.environ.update(store.s3.environment)
    for seed in range(given.seed, given.seed + given.count):
        plan, began = Plan(seed), time.monotonic()
        with tempfile.TemporaryDirectory(prefix="dejaq-disaster-") as place:
            disaster = Disaster(plan, store, Path(place))
            try:
                disaster.run()
            except Exception as wrong:  # noqa: BLE001 - each is told, and the next one is tried
                failed += 1
                print(f"seed {seed}: {wrong!r}\n  {plan}", flush=True)
            else:
                lags.append(disaster.lag_ms)
            print(f"seed {seed}: {time.monotonic() - began:.1f} s", flush=True)
    lags.sort()
    if lags:
        print(
            f"{len(lags)} of {given.count} disasters came out well; lost was what had come in the "
            f"last {lags[len(lags) // 2]} ms (median), {lags[-1]} ms (most)"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
