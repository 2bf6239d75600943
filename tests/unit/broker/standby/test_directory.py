"""Covers: a store that is filled beside that of a standby takes its place, and what was filled by
half is removed.

Not covered: brokers that do so while they run (test_standby.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.broker.site import Site
from dejaqueue.broker.standby import filling
from dejaqueue.broker.standby.directory import StandbyDirectory
from dejaqueue.broker.standby.record import StandbyState
from dejaqueue.catalogue.log import JOURNAL
from dejaqueue.clock import SystemClock
from dejaqueue.errors import Unavailable
from dejaqueue.journal.registry import store_of
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.setting_groups import BackupSettings, StandbySettings
from dejaqueue.settings import BrokerSettings
from tests.backups import client_of, settings_of, taken
from tests.unit.broker.standby.test_standby import started


class Port:
    """What the directory needs of a broker."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings, self.clock, self.site = settings, SystemClock(), Site()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """With a backup of one message."""
    backup = BackupSettings(url=str(tmp_path / "archive"), archive_interval_ms=5)
    broker = started(settings_of(tmp_path / "active").model_copy(update={"backup": backup}))
    client_of(broker).create_topic("a")
    client_of(broker).send("a", b"1", delay=3_600)
    assert taken(broker, tmp_path / "archive")["state"] == "done"
    broker.stop()
    return tmp_path / "archive"


def test_what_is_filled_beside_takes_the_place__or_is_removed(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby = StandbySettings(url=str(archive))
    settings = settings_of(tmp_path / "standby").model_copy(update={"standby": standby})
    directory = StandbyDirectory(Port(settings))  # type: ignore[arg-type]
    root = tmp_path / "standby"
    store, record = directory.opened(lambda: store_of(settings))
    record = directory.prepared(store, record)
    assert record is not None
    assert record.state is StandbyState.FOLLOWING
    store.drop("a")  # so that it can be told from what is filled anew
    with monkeypatch.context() as patch:

        def broken() -> None:
            raise Unavailable("a test", 1)

        with pytest.raises(Unavailable, match="a test"):
            directory.filled_beside(store, record, broken)
        assert not (root / filling.BESIDE).exists()
        patch.setattr(filling, "remove_beside", lambda _: None)
        with pytest.raises(Unavailable, match="a test"):
            directory.filled_beside(store, record, broken)  # a kill leaves it
    assert (root / filling.BESIDE).is_dir()
    assert store.made() == [JOURNAL]
    store.close()
    store, again = directory.opened(lambda: store_of(settings))
    assert again == record
    assert not (root / filling.BESIDE).exists()
    found = directory.filled_beside(store, record, lambda: None)
    assert found.id == record.id
    assert store.made() == [JOURNAL]
    store.close()
    store = directory.put_in_place(store, found)
    assert isinstance(store, SegmentStore)
    assert (store.root, store.made()) == (root, [JOURNAL, "a"])
    assert not (root / filling.BESIDE).exists()
    store.close()
    assert directory.opened(lambda: store_of(settings))[1] == found
