"""Covers: transactions that were decided in their home at the moment that is restored, and that not
everybody had been told: they are whole, or they never were, as soon as the restore is done.

Not covered: every place where a chain can end (test_archive_cuts.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pytest

from dejaqueue.broker.backup.restoring import RestorePlan, RestoreReport
from dejaqueue.broker.broker import Broker
from dejaqueue.engine.engine import Engine
from dejaqueue.errors import JournalDamaged, Unavailable
from dejaqueue.journal.registry import open_store
from dejaqueue.model import Topic
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.backups import newest, restored, started, state_of, taken
from tests.patience import PATIENCE_SECONDS

TIMEOUT_MS = 600_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = started(tmp_path / "data")
    for topic in ("home", "other"):
        broker.create_topic(Topic(topic))
    yield broker
    broker.stop()


def staged(broker: Broker, *topics: str, branch: str = "", name: str = "") -> str:
    """A transaction whose home is in `home`, with a message in each of these topics."""
    if not name:
        begun = broker.transactions.begin("home", TIMEOUT_MS, branched=bool(branch))
        name = str(begun["transaction"])
    for topic in topics:
        future: Future[Reply] = Future()
        text = f"{name}~{branch}" if branch else name
        batch = pa.record_batch({"payload": pa.array([(branch or topic).encode()])})
        stream = broker.open_write(WriteStream(topic, transaction=text))
        stream.submit(1, batch, future.set_result)
        assert future.result(PATIENCE_SECONDS).error is None
    return name


def decided_untold(broker: Broker, name: str, **how: object) -> None:
    """Commit it; nobody but the home hears of it."""
    coordinator = broker.transactions.coordinator
    coordinator.have_done = lambda *asked: asked[-1](Unavailable("away"))  # type: ignore[method-assign]
    decided = broker.transactions.decide(name, ["home/0", "other/0"], commit=True, **how)  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="is committed, but"):
        decided.result(PATIENCE_SECONDS)
    del coordinator.have_done


def engines(data: Path | str) -> dict[str, Engine]:
    """What is in journals that no broker has seen since the restore."""
    store, found = open_store(str(data)), {}
    for topic in store.made():
        if topic in {"home", "other", "copy"}:
            journal = store.open(topic, 0, only_made=True)
            found[topic] = state_of(journal)
            journal.close()
    store.close()
    return found


def counts(data: Path | str) -> dict[str, tuple[int, int]]:
    """Of each topic, how many messages count, and how many are staged."""
    found = {}
    for topic, engine in engines(data).items():
        waiting = sum(messages for _, messages, _ in engine.staged().values())
        found[topic] = engine.backlog(0)[0] - waiting, waiting
    return found


def restored_to(tmp_path: Path, plan: RestorePlan | None = None) -> RestoreReport:
    return restored(tmp_path / "backups", tmp_path / "new", plan)


def test_what_its_home_had_committed_is_whole__though_nobody_was_told(
    tmp_path: Path, broker: Broker
) -> None:
    decided_untold(broker, staged(broker, "home", "other"))
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    restored_to(tmp_path)
    assert counts(tmp_path / "new") == {"home": (1, 0), "other": (1, 0)}
    (decision,) = engines(tmp_path / "new")["home"].decisions.values()
    assert decision == (True, ""), "nobody has to be told any more"


def test_branches_that_count_are_there__the_others_never_were(
    tmp_path: Path, broker: Broker
) -> None:
    name = staged(broker, "home", "other", branch="1.0")
    staged(broker, "other", branch="2.0", name=name)
    decided_untold(broker, name, branches=["1.0"])
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    restored_to(tmp_path)
    assert counts(tmp_path / "new") == {"home": (1, 0), "other": (1, 0)}


@pytest.mark.parametrize("name", ["", "copy"])
def test_a_topic_without_its_home_has_what_was_committed_there__and_nothing_undecided(
    tmp_path: Path, broker: Broker, name: str
) -> None:
    staged(broker, "home", "other")
    decided_untold(broker, staged(broker, "home", "other"))
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    restored_to(tmp_path, RestorePlan(("other",), name))
    assert counts(tmp_path / "new") == {name or "other": (1, 0)}


def test_a_home_under_another_name_has_nobody_to_tell(tmp_path: Path, broker: Broker) -> None:
    decided_untold(broker, staged(broker, "home", "other"))
    staged(broker, "home", "other")
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    restored_to(tmp_path, RestorePlan(("home",), "copy"))
    assert counts(tmp_path / "new") == {"copy": (1, 0)}
    (decision,) = engines(tmp_path / "new")["copy"].decisions.values()
    assert decision == (True, "")


def test_what_is_undecided_stays_so__where_its_home_is_restored(
    tmp_path: Path, broker: Broker
) -> None:
    name = staged(broker, "home", "other")
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    restored_to(tmp_path)
    assert counts(tmp_path / "new") == {"home": (0, 1), "other": (0, 1)}
    again = started(tmp_path / "new")
    again.transactions.decide(name, ["home/0", "other/0"], commit=True).result(PATIENCE_SECONDS)
    again.stop()
    assert counts(tmp_path / "new") == {"home": (1, 0), "other": (1, 0)}


def test_what_a_home_had_committed_outlives_it(tmp_path: Path, broker: Broker) -> None:
    decided_untold(broker, staged(broker, "home", "other"))
    coordinator = broker.transactions.coordinator
    coordinator.have_done = lambda *asked: asked[-1](Unavailable("away"))  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        broker.delete_topic("home")
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    del coordinator.have_done
    restored_to(tmp_path)
    assert counts(tmp_path / "new") == {"other": (1, 0)}


def test_a_home_that_is_damaged_is_named__and_what_it_had_not_told_is_aborted_when_it_is_skipped(
    tmp_path: Path, broker: Broker
) -> None:
    decided_untold(broker, staged(broker, "home", "other"))
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    copy = next(one for one in newest(tmp_path / "backups").partitions if one.topic == "home")
    piece = next(copy.pieces)
    (tmp_path / "backups" / "pieces" / piece.name[:2] / piece.name).write_bytes(b"rot")
    with pytest.raises(JournalDamaged, match=piece.name):
        restored_to(tmp_path)
    with pytest.raises(JournalDamaged, match=piece.name):
        restored_to(tmp_path, RestorePlan(("other",)))
    report = restored_to(tmp_path, RestorePlan(("other",), skips_damaged=True))
    assert "what home/0 had decided of transactions is not known" in report.damaged[-1]
    assert counts(tmp_path / "new") == {"other": (0, 0)}
