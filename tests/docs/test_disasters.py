"""Covers: the commands of docs/guides/disasters.md mend what they are said to mend, run as they
stand there, against a broker to which it has happened.

Not covered: disasters of whole clusters, whose commands tests of the cluster run (ELSEWHERE); what
the broker does by itself meanwhile (tests/rules, tests/crash, tests/corruption).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

import dejaqueue
from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.clock import SystemClock
from dejaqueue.errors import EncryptionKeyMissing, JournalDamaged, ResourceExhausted
from dejaqueue.flight.server import FlightServer
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.local import LocalTransport
from dejaqueue.setting_groups import EncryptionSettings
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.cli.conftest import invoke
from tests.docs.test_snippets import parse
from tests.integration.papers import Papers
from tests.patience import until

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/guides/disasters.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"<!-- run: ([a-z-]+) -->\n\n```console\n(.*?)```", PAGE, re.DOTALL))
ELSEWHERE = {
    "node": ("tests/cluster/test_join_leave.py", 'command("remove", "a"'),
    "coordinator": ("tests/cluster/test_restored.py", "adopts=True"),
}
"""Disasters of a cluster: the test that makes them happen, and what of it is the page's command."""
NOT_HERE = ("journalctl ",)
"""Commands of the system that only look."""


class Machine:
    """A machine with a broker, whose files are below a folder of the test's.

    Attributes:
        root: what stands for / in the page's paths.
        key: shown by commands to the broker.
    """

    def __init__(self, root: Path, *, encrypted: bool = False) -> None:
        self.root = root
        self.key: str | None = None
        self.said: list[Result] = []
        master = f"file:{root}/etc/dejaq/master.key" if encrypted else ""
        self._settings = BrokerSettings(
            journal=JournalSettings(url=str(root / "var/lib/dejaq"), segment_bytes=1 << 20),
            encryption=EncryptionSettings(master_key=master),
        )
        self._server: FlightServer | None = None
        self.broker: Broker | None = None
        for name in ("var/lib", "var/backups", "etc/dejaq", "media/safe"):
            (root / name).mkdir(parents=True)

    @property
    def data(self) -> Path:
        return self.root / "var/lib/dejaq"

    @property
    def backups(self) -> Path:
        return self.root / "var/backups/dejaq"

    @property
    def url(self) -> str:
        assert self._server is not None
        return self._server.url

    def start(self) -> None:
        """Start the broker, on a port of its own each time."""
        broker = Broker(self._settings)
        broker.start()
        self.broker = broker
        self._server = FlightServer(broker, "127.0.0.1", 0, gate=Gate(broker.keys))
        self._server.start()

    def stop(self) -> None:
        """Stop it, if it runs."""
        server, broker = self._server, self.broker
        self._server = self.broker = None
        if server is not None and broker is not None:
            server.stop()
            broker.stop()

    def client(self) -> dejaqueue.Client:
        return dejaqueue.Client(self.url, api_key=self.key)

    def back_up(self) -> None:
        """Have a backup there."""
        assert invoke("backup", "to", str(self.backups), url=self.url).exit_code == 0

    def payloads(self, topic: str) -> list[bytes]:
        with self.client() as client:
            found: list[bytes] = client.peek(topic, limit=1_000)["payload"].to_pylist()
            return sorted(found)

    # --- the page's commands ----------------------------------------------------------------------

    def run(self, name: str) -> list[Result]:
        """Run a block of the page as it stands; what its commands of ours said."""
        said = []
        for line in BLOCKS[name].splitlines():
            if not line.startswith("$ ") or line[2:].startswith(NOT_HERE):
                continue
            words = [self._here(word) for word in shlex.split(line[2:])]
            match words:
                case ["systemctl", "stop", "dejaq"]:
                    self.stop()
                case ["systemctl", "start", "dejaq"]:
                    self.start()
                case ["cp", source, target]:
                    shutil.copy2(source, target)
                case ["mv", source, target]:
                    os.rename(source, target)
                case ["dejaq", *arguments]:
                    said.append(self._dejaq(arguments))
                case _:
                    raise AssertionError(f"{line}: a command that this test does not know")
        return said

    def _here(self, word: str) -> str:
        return re.sub(r"(^|=)(/(?:var|etc|media)/)", rf"\g<1>{self.root}\g<2>", word)

    def _dejaq(self, arguments: list[str]) -> Result:
        key = ["--api-key", self.key] if self.key and "--data" not in arguments else []
        return invoke(*arguments, *key, url=self.url if self._server else None)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    """Makes the test's machine, whose broker ends with it."""
    made: list[Machine] = []

    def machine(*, encrypted: bool = False) -> Machine:
        made.append(Machine(tmp_path, encrypted=encrypted))
        return made[-1]

    yield machine
    for one in made:
        one.stop()


@pytest.fixture
def machine(make: Callable[..., Machine]) -> Machine:
    """A machine whose broker runs, with five orders."""
    found = make()
    found.start()
    with found.client() as client:
        client.create_topic("orders", max_attempts=1)
        client.send_batch("orders", [{"payload": b"%d" % n} for n in range(5)])
    return found


ORDERS = [b"%d" % n for n in range(5)]


def statuses(said: list[Result]) -> list[int]:
    return [one.exit_code for one in said]


# --- each disaster --------------------------------------------------------------------------------


def test_first_a_look_changes_nothing(machine: Machine) -> None:
    doctor, stats = machine.run("look")
    assert doctor.exit_code in (0, 1), doctor.output
    assert stats.exit_code == 0
    assert "orders" in stats.output
    assert machine.payloads("orders") == ORDERS


def test_a_full_disk_has_room_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken_bytes() -> int:
        return sum(path.stat().st_size for path in machine.data.rglob("*") if path.is_file())

    with machine.client() as client:
        for topic in ("newsletters", "scratch"):
            client.create_topic(topic, max_attempts=1)
        client.create_topic("newsletters.dead")
        rows = [{"payload": b"x" * 1_000, "delay": 3_600, "tags": ["campaign-7"]}] * 100
        client.send_batch("newsletters", rows).raise_for_status()
        client.send("newsletters", b"another", delay=3_600)
        client.send_batch("scratch", [{"payload": b"y" * 1_000, "delay": 3_600}] * 100)
        # As much is free as the reserve is and a little; so it is full by what comes now.
        reserve = BrokerSettings().journal.reserve_bytes
        room = taken_bytes() + reserve + 4_000
        monkeypatch.setattr(FileSystem, "free_bytes", lambda self, directory: room - taken_bytes())
        with pytest.raises(ResourceExhausted):
            client.send("orders", b"z" * 8_000)
    said = machine.run("full")
    assert statuses(said) == [0] * 5, [one.output for one in said]
    assert "100" in said[1].output
    assert machine.payloads("newsletters") == [b"another"]
    assert machine.payloads("scratch") == []
    monkeypatch.undo()
    with machine.client() as client:
        client.send("orders", b"z" * 8_000)


def test_a_lost_disk_comes_back_from_the_backup(machine: Machine) -> None:
    machine.back_up()
    machine.stop()
    shutil.rmtree(machine.data)
    said = machine.run("lost")
    assert statuses(said) == [0] * 3, [one.output for one in said]
    assert machine.payloads("orders") == ORDERS


def test_a_damaged_file_is_replaced_by_the_backup(machine: Machine) -> None:
    machine.back_up()
    machine.stop()
    flip_a_payload(machine.data, b"another order")  # not there: nothing is damaged yet
    machine.start()
    with machine.client() as client:
        client.send("orders", b"spoilt order")
    machine.stop()
    assert flip_a_payload(machine.data, b"spoilt order")
    machine.start()
    with pytest.raises(JournalDamaged):
        machine.payloads("orders")
    said = machine.run("damaged")
    assert statuses(said) == [0] * 3, [one.output for one in said]
    assert machine.payloads("orders") == ORDERS
    assert (machine.root / "var/lib/dejaq.damaged").is_dir()


def flip_a_payload(folder: Path, payload: bytes) -> bool:
    """Flip a bit of a payload wherever it is kept; whether it was found."""
    found = False
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        place = content.find(payload)
        if place >= 0:
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            found = True
    return found


def test_a_damaged_backup_is_stored_anew(machine: Machine) -> None:
    machine.back_up()
    pieces = [path for path in (machine.backups / "pieces").rglob("*") if path.is_file()]
    largest = max(pieces, key=lambda path: path.stat().st_size)
    content = largest.read_bytes()
    largest.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    damaged, taken, whole = machine.run("backup-damaged")
    assert damaged.exit_code == 5, damaged.output
    assert taken.exit_code == 0, taken.output
    assert whole.exit_code == 0, whole.output


def test_what_was_purged_is_there_again_beside_it(machine: Machine) -> None:
    machine.back_up()
    assert invoke("topic", "purge", "orders", "--yes", url=machine.url).exit_code == 0
    assert machine.payloads("orders") == []
    restored, peeked = machine.run("mistake")
    assert restored.exit_code == 0, restored.output
    assert len(peeked.stdout.splitlines()) == len(ORDERS)
    assert machine.payloads("orders-before") == ORDERS
    assert machine.payloads("orders") == []


def test_dead_letters_go_back(machine: Machine) -> None:
    with machine.client() as client:
        with client.consume("orders", max_messages=5) as consumer:
            for message in consumer:
                message.nack(reason="a bug")
        until(lambda: "orders.dead" in client.stats().topics, "the letters' topic is there")
        until(lambda: client.stats("orders.dead").ready == 5, "the letters are there")
    listed, redriven = machine.run("letters")
    assert "a bug" in listed.output
    assert redriven.exit_code == 0, redriven.output
    until(lambda: machine.payloads("orders") == ORDERS, "they are carried back")


def test_a_flood_is_taken_away(machine: Machine) -> None:
    with machine.client() as client:
        client.create_topic("newsletters")
        client.send_batch("newsletters", [{"payload": b"", "tags": ["campaign-7"]}] * 50)
        client.send("newsletters", b"wanted")
    said = machine.run("flood")
    assert statuses(said) == [0] * 3, [one.output for one in said]
    assert machine.payloads("newsletters") == [b"wanted"]


def test_a_clock_that_was_wrong_leaves_nothing(make: Callable[..., Machine]) -> None:
    machine = make()
    clock = VirtualClock(SystemClock().now_ms())
    ahead = Broker(BrokerSettings(journal=JournalSettings(url=str(machine.data))), clock)
    ahead.start()
    with dejaqueue.Client(transport=LocalTransport(ahead), clock=clock) as client:
        client.create_topic("reminders")
        client.create_topic("reports", kind="cron")
        client.cron("reports").put("yearly", cron="0 0 1 1 *", misfire="skip")
        clock.jump(ms=10 * 365 * 86_400_000)
        clock.advance(ms=31_000)
        client.send("reminders", b"now")
        client.stats("reports")
    ahead.stop()
    machine.start()
    said = machine.run("clock")
    assert statuses(said) == [0] * 4, [one.output for one in said]
    assert "yearly" in said[0].output
    assert "now" in said[2].output
    again = invoke("repair", "clock", url=machine.url)
    assert "yearly" not in again.output
    with machine.client() as client:
        [message] = client.consume("reminders", max_messages=1, auto_ack=True)
        assert message.payload == b"now"


def test_the_master_key_comes_back_from_its_copy(make: Callable[..., Machine]) -> None:
    machine = make(encrypted=True)
    master = machine.root / "etc/dejaq/master.key"
    master.write_text("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n", encoding="ascii")
    master.chmod(0o600)
    shutil.copy2(master, machine.root / "media/safe/master.key")
    machine.start()
    with machine.client() as client:
        client.create_topic("orders")
        client.send("orders", b"secret")
    machine.stop()
    master.unlink()
    with pytest.raises(EncryptionKeyMissing):
        machine.start()
    [stats] = machine.run("master-key")
    assert stats.exit_code == 0, stats.output
    assert machine.payloads("orders") == [b"secret"]


def test_a_lost_admin_key_is_replaced(machine: Machine) -> None:
    assert machine.broker is not None
    lost = machine.broker.keys.create("root", ["admin:*"])[1]
    [created] = machine.run("admin-key")
    assert created.exit_code == 0, created.output
    machine.key = re.search(r"dq_\w+", created.stdout)[0]  # type: ignore[index] # or it fails here
    assert machine.key != lost
    assert machine.payloads("orders") == ORDERS


def test_a_key_in_the_wrong_hands_is_good_for_nothing(machine: Machine) -> None:
    assert machine.broker is not None
    machine.key = machine.broker.keys.create("root", ["admin:*"])[1]
    stolen = machine.broker.keys.create("shop", ["produce:orders"])[1]
    listed, revoked, created = machine.run("stolen-key")
    assert statuses([listed, revoked, created]) == [0, 0, 0], revoked.output
    assert "shop" in listed.output
    fresh = re.search(r"dq_\w+", created.stdout)
    assert fresh is not None
    sending = ("send", "orders", "--text", "x", "--api-key")
    assert "revoked" in invoke(*sending, stolen, url=machine.url).output
    assert invoke(*sending, fresh[0], url=machine.url).exit_code == 0


def test_a_certificate_that_has_ended_is_replaced(machine: Machine, tmp_path: Path) -> None:
    place = tmp_path / "papers"
    place.mkdir()
    papers = Papers(place)
    for pair, names in ((papers.expired, "etc/dejaq/broker"), (papers.broker, "media/safe/new")):
        for path, ending in zip(pair, ("pem", "key"), strict=True):
            shutil.copy2(path, machine.root / f"{names}.{ending}")
            (machine.root / f"{names}.{ending}").chmod(0o600)
    flags = [word for word in shlex.split(BLOCKS["certificate"]) if word.startswith("server.tls")]
    asked = [part for flag in flags for part in ("--set", machine._here(flag))]
    before = invoke("doctor", *asked, "--quiet", url=machine.url)
    assert "broker.pem ends on" in before.output, before.output
    assert "it is over" in before.output
    [after] = machine.run("certificate")
    assert "it is over" not in after.output


# --- the page itself ------------------------------------------------------------------------------


def test_every_block_of_the_page_is_run() -> None:
    assert PAGE.count("```console") == len(BLOCKS)
    here = (Path(__file__)).read_text(encoding="utf-8")
    run = set(re.findall(r'\.run\("([a-z-]+)"\)', here))
    assert run | set(ELSEWHERE) == set(BLOCKS)
    assert not run & set(ELSEWHERE)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_commands_for_clusters_are_run_by_their_tests(name: str) -> None:
    path, text = ELSEWHERE[name]
    assert text in (ROOT / path).read_text(encoding="utf-8")
    lines = [line[2:] for line in BLOCKS[name].splitlines() if line.startswith("$ ")]
    for line in lines:
        parse(line)
    said = {"node": "cluster remove a", "coordinator": "cluster.adopt=true"}[name]
    assert any(said in line for line in lines)
