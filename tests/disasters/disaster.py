"""One disaster from the beginning to what is back, or two of them; and the judgement."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dejaqueue import Client
from dejaqueue.backup.archive import Archive
from dejaqueue.errors import DejaQError, JournalDamaged, NotActive, Refused, Unavailable
from dejaqueue.times import show_instant
from tests.backups import newest, reach_ms
from tests.disasters.ledger import LEFT, RIGHT, SINGLES, Found, Ledger, Work, now_ms, payloads
from tests.disasters.plan import Plan, Round
from tests.disasters.processes import Command
from tests.disasters.sites import LEASE_MS, Ground, Place, Site, check_named, flip, some_file
from tests.disasters.store_proxy import Trouble
from tests.patience import PATIENCE_SECONDS, until

ARCHIVES_NOTHING: dict[str, object] = {"backup__url": "", "backup__archive_interval_ms": 0}
"""What is served for a look must not take a backup of that, which would be the newest."""
BUSY = "one at a time"
PUTS, GETS = ("PUT",), ("GET", "HEAD")
LOOK_SECONDS = 0.05
STRIKE_SECONDS = 1.0
"""A request to kill at that does not come by then is not waited for."""
PROMOTION_REQUESTS = 4


class Disaster:
    """A plan, done; what is wrong is an AssertionError that says what.

    Args:
        root: an empty directory.

    Attributes:
        place, draw: where it happens, and what is drawn on the way.
        where, archive_root: the archive, as settings name it, and its directory.
        lost_ms: of each way back over the archive: what was lost, from its instant to the strike.
        steps: what has happened so far.
    """

    def __init__(self, plan: Plan, ground: Ground, root: Path) -> None:
        self.plan, self.ground = plan, ground
        self.draw = random.Random(-plan.seed - 1)
        self.place = Place(ground, root)
        self._keys: dict[str, object] = {}
        if plan.is_encrypted:
            self._keys = {"encryption__master_key": self.place.key("master.key")}
        self._archives = self._sites = 0
        self.lost_ms: list[int] = []
        self.steps: list[str] = []
        self.new_archive()

    # --- what is set up -----------------------------------------------------------------------

    def new_archive(self) -> None:
        """Archives from now on go to a new place."""
        self._archives += 1
        if self.plan.archive == "s3":
            self.archive_root = self.place.bucket("archive")
            self.where = f"s3://{self.archive_root.name}/dejaq"
        else:
            self.archive_root = self.place.root / f"archive-{self._archives}"
            self.where = str(self.archive_root)

    @property
    def _archiving(self) -> dict[str, object]:
        return {
            "backup__url": self.where,
            "backup__archive_interval_ms": self.plan.interval_ms,
            "backup__interval_ms": self.plan.backup_interval_ms,
        }

    def new_site(self, kind: str, **settings: object) -> Site:
        self._sites += 1
        given = {**self._archiving, **self._keys, **settings}
        return Site(self.place, f"site-{self._sites}", kind, given)

    def step(self, text: str) -> None:
        self.steps.append(text)

    # --- the whole of it ----------------------------------------------------------------------

    def run(self) -> None:
        """Do it."""
        proxy = self.ground.proxy
        proxy.reset(self.plan.seed)
        try:
            with self.ground.known():
                site = self.new_site(self.plan.kind)
                site.serves()
                with Client(site.address) as client:
                    client.create_topic(SINGLES, partitions=3, lease_ms=LEASE_MS)
                    for name in (LEFT, RIGHT):
                        client.create_topic(name, partitions=2)
                ledger = Ledger()
                for number, one in enumerate(self.plan.rounds):
                    self.step(f"{one}")
                    proxy.reset(self.plan.seed * 10 + number)
                    site, ledger = _Round(self, one, site, ledger).run()
            faults = self.place.faults()
            assert not faults, "; ".join(faults)
        finally:
            proxy.reset(0)
            self.place.close()


def taken(client: Client, where: str, *, full: bool = False) -> dict[str, Any]:
    """A backup that is asked for, when it is done or has failed."""
    progress: dict[str, Any] = {}

    def is_begun() -> bool:
        try:
            client.backup(where, full=full)
        except Refused as refused:
            assert "is being taken already" in str(refused), refused
            return False
        return True

    def has_ended() -> bool:
        progress.update(client.backup_progress())
        return str(progress["state"]) != "running"

    def is_taken() -> bool:
        until(is_begun, "no other backup is being taken")
        until(has_ended, "the backup ends")
        return BUSY not in progress.get("error", "")  # another process takes one

    until(is_taken, "others take no backup")
    return progress


class _Round:
    """One disaster of a plan."""

    def __init__(self, disaster: Disaster, plan: Round, site: Site, ledger: Ledger) -> None:
        self._of, self.plan, self.site, self.ledger = disaster, plan, site, ledger
        self._place, self._draw = disaster.place, disaster.draw
        self._proxy = disaster.ground.proxy
        self._where, self._root = disaster.where, disaster.archive_root
        self._in_s3 = disaster.plan.archive == "s3"
        self._proxy.bucket = self._root.name if self._in_s3 else "-"
        self._settled_ms = self._cut_ms = 0
        self._copy: Path | None = None
        self._work: Work | None = None
        self._standby: Site | None = None

    def run(self) -> tuple[Site, Ledger]:
        """Do it; who serves then, and what that one has."""
        try:
            return self._run()
        finally:
            self._end_work()

    def _run(self) -> tuple[Site, Ledger]:
        plan = self.plan
        self._back_up()
        if plan.way == "standby":
            self._standby = self._of.new_site("directory", standby__url=self._where)
            self._standby.serves()
        self._load()
        struck_ms = self._strike()
        self._clear_way()
        back: dict[str, Callable[[], tuple[Site, int]]] = {
            "again": self._again,
            "restore": self._restore,
            "instant": self._restore,
            "beside": self._beside,
            "standby": self._promote,
            "older copy": self._older_copy,
            "rot": self._rot,
        }
        site, as_of_ms = back[plan.way]()
        if plan.way not in ("again", "instant", "beside"):
            self._of.lost_ms.append(max(struck_ms - as_of_ms, 0))
        found = Found.at(site.address)
        self._judge(found, as_of_ms, is_exact=plan.way == "instant")
        if plan.way == "standby":
            self._old_one_is_refused()
        self._end_work()
        # A consumer that the old site had may have acked here, too, in between.
        return site, Ledger.of(Found.at(site.address))

    def _judge(self, found: Found, as_of_ms: int, *, is_exact: bool = False) -> None:
        faults = self.ledger.faults(found, as_of_ms, is_exact=is_exact)
        work = self._work
        faults += [] if work is None else work.errors
        assert not faults, f"as of {show_instant(as_of_ms)}: {'; '.join(faults)}"

    def _end_work(self) -> None:
        if self._work is not None:
            self._work.end()

    # --- before the strike --------------------------------------------------------------------

    def _back_up(self) -> None:
        with Client(self.site.address) as client:
            done = taken(client, self._where)
        assert done["state"] == "done", done
        until(lambda: newest(self._where).chain, "its archive begins")
        self._cut_ms = newest(self._where).cut_ms

    def _load(self) -> None:
        plan, site = self.plan, self.site
        name = f"{site.name}-{len(self._of.steps)}"
        deletes = self._of.plan.deletes
        self._work = Work(lambda: site.address, self.ledger, name, deletes=deletes)
        self._wait(plan.load_seconds)
        if plan.way == "older copy":
            self._copy_aside()
        if plan.backs_up:
            self._back_up_under_load()
        if plan.trouble is not Trouble.NONE:
            self._trouble(plan.trouble)
            self._wait(plan.trouble_seconds)
            if plan.trouble_ends:
                self._clear_way()
        if plan.restarts and self._standby is None:
            self._step("it is killed, and starts again")
            site.kill()
            site.serves()
        self._wait(plan.load_seconds)
        is_away = plan.trouble is not Trouble.NONE and not plan.trouble_ends
        if not is_away and (plan.settles or plan.way == "older copy"):
            self._settle()
            self._wait(plan.load_seconds * plan.part)

    def _step(self, text: str) -> None:
        self._of.step(text)

    def _wait(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def _copy_aside(self) -> None:
        self._step("a copy is made of it")
        self.site.stop()
        self._copy = self.site.copy_aside()
        self.site.serves()
        if self.plan.trouble is not Trouble.NONE and not self.plan.trouble_ends:
            self._settle()  # or nothing would tell that it is older

    def _back_up_under_load(self) -> None:
        self._step(f"a backup is taken: {self.plan.backs_up}")
        try:
            with Client(self.site.address) as client:
                done = taken(client, self._where, full=self.plan.backs_up == "full")
        except DejaQError as failure:
            self._step(f"no backup: {failure}")
            return
        self._step(f"a backup: {done}")
        # A topic that is deleted in that moment, and a store that is away, fail it: it is named.
        assert done["state"] == "done" or self._of.plan.deletes, done

    def _trouble(self, trouble: Trouble) -> None:
        self._step(f"the archive: {trouble.value}")
        if self._in_s3:
            self._proxy.trouble = trouble
        else:
            self._root.rename(self._aside)
            self._root.write_text("not a directory")

    @property
    def _aside(self) -> Path:
        return self._root.with_name(f"{self._root.name}-aside")

    def _clear_way(self) -> None:
        self._proxy.trouble = Trouble.NONE
        if not self._in_s3 and self._aside.exists():
            self._root.unlink()
            self._aside.rename(self._root)

    def _settle(self) -> None:
        """Return when all that was acknowledged before this is archived."""
        began_ms = now_ms()

        def is_reached() -> bool:
            self._wait(LOOK_SECONDS)
            try:
                return reach_ms(self._where) >= began_ms
            except JournalDamaged:  # a piece that was listed, and is in two backups by now
                return False

        until(is_reached, "the archive has come so far")
        self._settled_ms = began_ms

    # --- the strike ---------------------------------------------------------------------------

    def _strike(self) -> int:
        """What ends the site; when."""
        plan, site = self.plan, self.site
        self._step(f"strike: {plan.strike}")
        if plan.strike == "at a request":
            self._strike_at_request()
        at_ms = now_ms()
        if plan.strike in ("kill", "at a request"):
            site.kill()
        elif plan.strike == "stop":
            self._clear_way()  # it would wait for ten seconds
            site.stop()
        elif plan.strike == "pause":
            site.pause()
        if plan.strike not in ("pause", "none"):
            self._end_work()
        return at_ms

    def _strike_at_request(self) -> None:
        struck = threading.Event()

        def act() -> None:
            self.site.kill_at_once()
            struck.set()

        self._proxy.trouble = Trouble.NONE
        self._proxy.strike(self.plan.strike_after, PUTS, self.plan.moment, act)
        struck.wait(STRIKE_SECONDS)
        self._proxy.spare()

    # --- the same journals --------------------------------------------------------------------

    def _again(self) -> tuple[Site, int]:
        """What was acknowledged is there, and the archive goes on."""
        self._try_wrong_key(self.site)
        self.site.serves()
        found = Found.at(self.site.address)
        self._judge(found, now_ms())
        with Client(self.site.address) as client:
            payload = b"mark-%d" % now_ms()
            client.send(SINGLES, payload, delay=3_600)
            self.ledger = Ledger.of(Found.at(self.site.address))
            self._settle()
            assert newest(self._where).chain
        return self.site, now_ms()

    def _try_wrong_key(self, site: Site) -> None:
        if self._of.plan.tries_wrong_key:
            said = site.refuses_to_start(encryption__master_key=self._place.key("wrong.key"))
            assert "master key" in said, said

    # --- restores -----------------------------------------------------------------------------

    def _restore(self) -> tuple[Site, int]:
        self.site.lose()
        return self._restored()

    def _restored(self) -> tuple[Site, int]:
        """Over the archive, which may be damaged and is mended then."""
        instant_ms = self._instant_ms() if self.plan.way == "instant" else 0
        mend = self._damage()
        self._new_place()
        site = self._of.new_site(self.plan.target)
        more = ("--to", show_instant(instant_ms)) if instant_ms else ()
        report = self._restore_into(site, more, is_damaged=mend is not None)
        if report is None:
            assert mend is not None
            mend()
            report = self._restore_into(site, more)
            assert report is not None
        as_of_ms: int = report["cut_ms"]
        if instant_ms:
            assert as_of_ms == instant_ms, report
        elif mend is None:
            assert as_of_ms >= self._settled_ms, f"archived was {self._settled_ms}: {report}"
        self._try_wrong_key(site)
        site.serves()
        return site, as_of_ms

    def _instant_ms(self) -> int:
        """One between the backup that the round began with and the end of the archive."""
        reached_ms = reach_ms(self._where)
        return reached_ms - int((reached_ms - self._cut_ms) * self.plan.part * 0.999)

    def _new_place(self) -> None:
        """Where the next site archives to: another place, or the same."""
        if self.plan.part < 0.5:
            self._of.new_archive()

    def _arguments(self, site: Site, more: tuple[str, ...]) -> tuple[str, ...]:
        return ("restore", self._where, "--data", site.url, "--json", *more)

    def _restore_into(
        self, site: Site, more: tuple[str, ...], *, is_damaged: bool = False
    ) -> dict[str, Any] | None:
        """What is said of a restore that is done; None = it is refused, by the name of what is
        damaged."""
        given = self._arguments(site, more)
        settings = {name: value for name, value in site.settings.items() if "backup" not in name}
        if self._of.plan.is_encrypted and not is_damaged:
            wrong = settings | {"encryption__master_key": self._place.key("wrong.key")}
            said = check_named(self._place.done(*given, settings=wrong))
            assert "master key" in said, said
        report = None if is_damaged else self._killed(given, settings, site)
        if report is not None:
            return report
        self._step(" ".join(given))
        command = self._place.done(*given, settings=settings)
        if command.status() == 0:
            found: dict[str, Any] = json.loads(command.out)
            return found
        said = check_named(command)
        assert is_damaged, said
        self._step(f"refused: {said[-300:]}")
        if self.plan.skips:
            self._skip_damaged(settings)
        return None

    def _killed(
        self, given: tuple[str, ...], settings: dict[str, object], site: Site
    ) -> dict[str, Any] | None:
        """Kill restores, and see that nobody serves what is half there; what one says that ended
        before it was to be killed."""
        for after in self.plan.kills:
            command = self._killed_one(given, settings, after)
            self._step(f"a restore is killed: {after}: {command.status()}")
            if command.status() == 0:
                found: dict[str, Any] = json.loads(command.out)
                return found
            broker = site.start(**ARCHIVES_NOTHING)
            if broker.has_ended:
                said = check_named(broker)
                assert "restore" in said or "is missing" in said, said
                continue
            with Client(site.address) as client:
                topics = client.topics()
            site.kill()
            if "}" in command.out:
                return dict(json.loads(command.out))
            if topics:  # it had ended, and did not live to say so
                said = check_named(self._place.done(*given, settings=settings))
                assert "is there already" in said, f"half of it was served: {said}"
            self._empty(site)
        return None

    def _empty(self, site: Site) -> None:
        """A broker was started on nothing, and has made itself at home there."""
        site.lose()
        if site.kind == "sqlite":
            site.root.mkdir()

    def _killed_one(
        self, given: tuple[str, ...], settings: dict[str, object], after: int
    ) -> Command:
        command: list[Command] = []
        if self._in_s3:
            begun = threading.Event()

            def act() -> None:
                begun.wait(PATIENCE_SECONDS)
                command[0].kill()

            self._proxy.strike(after, GETS, self.plan.moment, act)
            command.append(self._place.command(*given, settings=settings))
            begun.set()
            command[0].status()
            self._proxy.spare()
        else:
            command.append(self._place.command(*given, settings=settings))
            command[0].status(after / 1_000)
            command[0].kill()
        return command[0]

    def _skip_damaged(self, settings: dict[str, object]) -> None:
        """What is whole is restored, and the rest has a name; or nothing is."""
        site = self._of.new_site("directory", **ARCHIVES_NOTHING)
        command = self._place.done(*self._arguments(site, ("--skip-damaged",)), settings=settings)
        if command.status() != 0:
            check_named(command)
            return
        assert json.loads(command.out)["damaged"], command.out
        site.serves()
        with Client(site.address) as client:
            for topic in client.topics():
                payloads(client, topic.name)
        site.kill()

    def _damage(self) -> Callable[[], None] | None:
        """Damage a file of the archive; how to mend it; None = nothing is damaged."""
        kind = self.plan.damage
        if kind == "none":
            return None
        path = some_file(self._root, self._draw)
        self._step(f"{path} is {kind}")
        is_named, kept = self._is_named(path), self._place.root / "kept"
        shutil.copy2(path, kept)
        if kind == "flipped":
            flip(path, self._draw)
        elif kind == "short":
            with path.open("r+b") as file:
                file.truncate(self._draw.randrange(path.stat().st_size))
        else:
            path.unlink()
        verified = self._place.done("backup", "verify", self._where)
        if verified.status() != 0:
            check_named(verified)
        assert verified.status() or kind == "missing" or not is_named, f"{kind} {path}: whole"

        def mend() -> None:
            shutil.copy2(kept, path)

        return mend

    def _is_named(self, path: Path) -> bool:
        """False for a piece of a backup that was not done when its broker was killed: nobody reads
        it, and a backup that needs it stores it again."""
        archive = Archive.open(self._where)
        pieces = {piece.name for one in archive.ids() for piece in archive.manifest(one).pieces}
        return path.parent.parent.name != "pieces" or path.name in pieces

    def _beside(self) -> tuple[Site, int]:
        """A topic is restored under another name into what is there."""
        site, name = self.site, f"{SINGLES}-before"
        instant_ms = self._instant_ms()
        to = ("--to", show_instant(instant_ms), "--topic", SINGLES, "--as", name)
        command = self._place.done(*self._arguments(site, to), settings=site.settings)
        if site.kind == "divided":  # it has topics already
            assert "has none" in check_named(command), command.said
            site.serves()
            return site, now_ms()
        assert command.status() == 0, command.said
        site.serves()
        found = Found.at(site.address)
        self._judge(found, now_ms())
        with Client(site.address) as client:
            before = payloads(client, name)
            client.delete_topic(name)
        of_then = Found(before, found.left, found.right, [])
        faults = Ledger(self.ledger.sent, self.ledger.acked).faults(
            of_then, instant_ms, is_exact=True
        )
        wrong = [text for text in faults if "nobody's" not in text]
        assert not wrong, f"{name} as of {show_instant(instant_ms)}: {'; '.join(wrong)}"
        return site, now_ms()

    # --- copies and rot -----------------------------------------------------------------------

    def _older_copy(self) -> tuple[Site, int]:
        """An older copy is not taken for what was there: its archive does not go on."""
        assert self._copy is not None
        site, known = self.site, set(Archive.open(self._where).ids())
        site.put_copy(self._copy)
        site.serves()
        with Client(site.address) as client:
            progress = taken(client, self._where)
        site.kill()
        assert "an old copy was put in place" in progress.get("error", ""), progress
        assert set(Archive.open(self._where).ids()) == known
        return self._restore()

    def _rot(self) -> tuple[Site, int]:
        """A bit of the journals is another one: nothing else than what was stored is served."""
        path = self.site.rot(self._draw)
        self._step(f"a bit of {path} is another one")
        broker = self.site.start()
        if broker.has_ended:
            self._step(f"refused: {check_named(broker)[-300:]}")
        else:
            try:
                found = Found.at(self.site.address)
            except (JournalDamaged, Unavailable) as refused:
                self._step(f"refused: {refused}")
            else:
                self._judge(found, now_ms())
            self.site.kill()
        return self._restore()

    # --- a standby ----------------------------------------------------------------------------

    def _promote(self) -> tuple[Site, int]:
        standby = self._standby
        assert standby is not None
        given = ("promote", "--yes", "--json", "--url", standby.address)
        if self.plan.kills:
            self._kill_promotion(standby, given)
        command = self._place.done(*given)
        if command.status() == 0:
            as_of_ms = int(json.loads(command.out)["as_of_ms"])
        else:  # it went on by itself, and is active
            assert "serves already" in check_named(command), command.said
            as_of_ms = self._settled_ms
        assert as_of_ms >= self._settled_ms
        return standby, as_of_ms

    def _kill_promotion(self, standby: Site, given: tuple[str, ...]) -> None:
        after = self.plan.kills[0]
        self._step(f"the promotion is killed: {after}")
        if self._in_s3:
            self._proxy.strike(
                after % PROMOTION_REQUESTS, PUTS, self.plan.moment, standby.kill_at_once
            )
            command = self._place.command(*given)
        else:
            command = self._place.command(*given)
            command.status(after / 1_000)
        if self._in_s3:
            command.status()
            self._proxy.spare()
        standby.kill()
        assert command.status() is not None
        standby.serves()

    def _old_one_is_refused(self) -> None:
        """The site that was replaced serves nothing any more, dead, paused or alive."""
        site = self.site
        if self.plan.strike not in ("pause", "none"):
            said = site.refuses_to_start()
            assert "this broker was replaced" in said, said
            return
        if self.plan.strike == "pause":
            site.resume()
        began_ms = now_ms()
        with Client(site.address, retry_ms_max=0) as client:
            while True:
                try:
                    client.send(SINGLES, b"to-the-old-one", delay=3_600)
                except NotActive:
                    break
                except Unavailable:
                    pass
                assert now_ms() - began_ms < PATIENCE_SECONDS * 1_000, "the old one goes on"
            refused_ms = now_ms()
            try:
                client.peek(SINGLES)
            except NotActive:
                pass
            else:
                raise AssertionError("the old one answers a look")
        self._end_work()
        work = self._work
        assert work is not None
        assert work.refused, "nobody who worked on was told"
        late = [one for at, one in self.ledger.handed if at > refused_ms + LEASE_MS]
        assert not late, f"handed out by both: {late[:3]}"
        with suppress(AssertionError):
            site.stop()
        site.kill()
