"""The data directory of a standby: opened, filled with a backup, and filled anew with a newer one.

If the archive goes on where a standby cannot follow, its directory is filled once more: at a start
it is emptied first; while the broker runs, a store beside it is filled, and put in its place.

Room: broker. Before the broker serves, or on the standby's thread.
Holds: a directory that is not whole is known as such, and emptied and filled again; one that has
anything that is only there is never emptied.
See: filling.py, what is written; standby.py, who decides; record.py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.fence import Fence, read_fence
from dejaqueue.backup.log_chain import LogChain, is_reached
from dejaqueue.backup.strands import strands_of
from dejaqueue.broker.standby import filling
from dejaqueue.broker.standby.ports import StandbyPort
from dejaqueue.broker.standby.record import StandbyRecord, StandbyState
from dejaqueue.connections.bucket_urls import open_bucket
from dejaqueue.errors import BadRequest, NotActive, Refused, Unavailable
from dejaqueue.journal.encryption.master_keys import MasterKey, load_master_keys
from dejaqueue.journal.interface import JournalStore
from dejaqueue.journal.registry import encrypt, store_of
from dejaqueue.journal.segments.store import SegmentStore

log = logging.getLogger("dejaqueue.standby")


def _go_on() -> None:
    """Nothing ends the filling."""


class StandbyDirectory:
    """The directory of a broker that may be a standby.

    Attributes:
        masters: keys to open backups with, once it is prepared.
    """

    def __init__(self, broker: StandbyPort) -> None:
        self._broker = broker
        self.masters: Sequence[MasterKey] = ()

    @property
    def _url(self) -> str:
        return self._broker.settings.standby.url

    def opened(
        self, open_store: Callable[[], JournalStore]
    ) -> tuple[JournalStore, StandbyRecord | None]:
        """Open the store, and what it knows of being a standby's: emptied first, if what is in it
        is not whole, or is of what is not archived any more.

        Raises:
            NotActive: a standby took the place of this broker. BadRequest, Refused, and others: no
                standby can be there. What `open_store` raises.
        """
        store = open_store()
        try:
            record = StandbyRecord.load(store)
            if record is not None and record.state is StandbyState.REPLACED:
                self._broker.site.replace(Fence.from_text(record.fence))
                self._broker.site.check_reads()
            if not isinstance(store, SegmentStore) or store.is_shared:
                if self._url:
                    limit = "used by a broker that is alone, of one process, with a data directory"
                    raise BadRequest("standby.url", limit, self._url)
                return store, record
            if not self._url or (record is not None and record.state is StandbyState.ACTIVE):
                if record is not None and record.state is not StandbyState.ACTIVE:
                    raise Refused(
                        "this directory is a standby's that was not promoted: start it with "
                        "`--standby URL`, or restore a backup into an empty directory"
                    )
                return store, record
            if record is None and store.made():
                raise Refused(
                    "there are journals: a standby begins with an empty directory, so that nothing "
                    "is lost that is only there"
                )
            self._broker.site.begin_standby(open_bucket(self._url).url)
            filling.remove_beside(store.root)
            if record is None or not self._has_to_begin_anew(record):
                return store, record
            root, record = store.root, replace(record, state=StandbyState.FILLING)
            record.save(store)
            store.close()
            log.info("%s is emptied: it is filled with the newest backup", root)
            filling.clear(root)
            return open_store(), record
        except BaseException:
            store.close()
            raise

    def _has_to_begin_anew(self, record: StandbyRecord) -> bool:
        if record.state is StandbyState.FILLING:
            return True
        if record.state is StandbyState.PROMOTING:
            return False
        try:
            archive = Archive.open(self._url)
            manifest = archive.newest(record.store)
            if manifest is None or manifest.chain != record.chain:
                return manifest is not None
            return record.is_astray or any(
                LogChain(archive.bucket, name).numbers().start > number + 1
                for name, (number, _) in record.strands.items()
            )
        except (Unavailable, BadRequest):
            return False  # what there is can be read meanwhile

    def prepared(self, store: JournalStore, record: StandbyRecord | None) -> StandbyRecord | None:
        """Fill the store of a standby, if it is empty; what it knows of itself then.

        Raises:
            BadRequest: there is nothing that can be followed. Others as `filling.fill`.
        """
        source = self._broker.settings.encryption.master_key
        assert isinstance(store, SegmentStore)  # else `opened` has refused it
        self.masters = load_master_keys(source) if source else ()
        if record is not None and record.state is not StandbyState.FILLING and store.made():
            return record
        return self._filled(store, record)

    def filled_beside(
        self, store: JournalStore, record: StandbyRecord, check: Callable[[], None]
    ) -> StandbyRecord:
        """Fill a store beside that of a standby with the newest backup; what it knows of itself.

        Args:
            store: the one that it has, in which nothing is changed.
            check: as of `filling.fill`.

        Raises:
            As `prepared`: nothing is beside it then.
        """
        assert isinstance(store, SegmentStore)
        root, settings = store.root, self._broker.settings
        filling.remove_beside(root)
        journal = settings.journal.model_copy(update={"url": str(root / filling.BESIDE)})
        beside = store_of(settings.model_copy(update={"journal": journal}))
        try:
            encrypt(beside, settings.encryption)
            assert isinstance(beside, SegmentStore)
            found = self._filled(beside, record, check)
        except BaseException:
            beside.close()
            filling.remove_beside(root)
            raise
        beside.close()
        return found

    def put_in_place(self, before: JournalStore, found: StandbyRecord) -> JournalStore:
        """Have what was filled beside a store instead of it, and open that.

        Args:
            before: is closed, and knows that it is not whole from now on.
            found: as `filled_beside` has answered.
        """
        assert isinstance(before, SegmentStore)
        filling.put_in_place(before.root)
        store = store_of(self._broker.settings)
        found.save(store)
        return store

    def _filled(
        self,
        store: SegmentStore,
        record: StandbyRecord | None,
        check: Callable[[], None] = _go_on,
    ) -> StandbyRecord:
        archive = Archive.open(self._url)
        manifest = archive.newest("" if record is None else record.store)
        if manifest is None or not manifest.chain:
            raise Refused(
                f"{archive.bucket.url} has no backup that an archive follows: set "
                "backup.archive_interval_ms at the broker whose standby this is"
            )
        fence = read_fence(archive.bucket, manifest.store)
        if fence is not None and (record is None or fence.standby != record.id):
            raise NotActive(f"nothing more is archived there: {fence.told()}; follow its archive")
        chain = LogChain(archive.bucket, manifest.chain)
        # Of strands, positions tell whether something is missing.
        if not manifest.in_strands and not is_reached(chain, manifest):
            raise Refused(f"pieces of the archive are missing behind backup {manifest.id}")
        identity = os.urandom(4).hex() if record is None else record.id
        record = StandbyRecord(
            identity, StandbyState.FILLING, manifest.store, manifest.chain, at_ms=manifest.cut_ms
        )
        record.save(store)
        chains = strands_of(archive.bucket, chain.name) if manifest.in_strands else [chain]
        begun = {one.name: (one.numbers().start - 1, "") for one in chains}
        began_us = self._broker.clock.now_us()
        count = filling.fill(archive, manifest, store, self.masters, log.info, check)
        record = replace(record, state=StandbyState.FOLLOWING, strands=begun, logs=manifest.logs)
        record.save(store)
        took_ms = (self._broker.clock.now_us() - began_us) // 1_000
        log.info("filled with backup %s: %d messages in %d ms", manifest.id, count, took_ms)
        return record
