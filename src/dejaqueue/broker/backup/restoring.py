"""Restoring a backup into a store of journals that no broker has open, or a cluster without topics.

Room: broker. Changes the catalogue by the same entries as a broker does, and writes journals.
Holds: a topic counts as used when its journals are whole, so a restore that was broken off goes on
with the topics that are not; until it is done no broker starts on the store; what is damaged is
refused by name, and left out only if that is asked for; a transaction is whole in what is restored,
or is not there.
See: archived_partition.py, one partition; archived_decisions.py; lineage.py; docs/guides/backup.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

import xxhash

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.log_chain import LogChain
from dejaqueue.backup.manifest import Manifest, PartitionCopy
from dejaqueue.broker.backup.archive_tail import ArchiveTail, partition_number
from dejaqueue.broker.backup.archived_decisions import ArchivedDecisions, Decisions
from dejaqueue.broker.backup.archived_partition import ArchivedPartition, void_leases, write
from dejaqueue.broker.backup.backups import CATALOGUE, KEYS
from dejaqueue.broker.backup.strand_tail import StrandTail
from dejaqueue.catalogue.changes import (
    AlteredTopic,
    Change,
    ClosedTopic,
    DeletedTopic,
    DeletingTopic,
    FoundedCluster,
    MadeTopic,
    UsedTopic,
)
from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.catalogue.state import CatalogueState, TopicRow
from dejaqueue.errors import (
    BadRequest,
    EncryptionKeyMissing,
    JournalDamaged,
    Refused,
    TopicExists,
    TopicUnknown,
    Unavailable,
)
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.encryption.data_keys import DataKeys
from dejaqueue.journal.encryption.master_keys import MasterKey
from dejaqueue.journal.interface import OWN_PREFIX, JournalStore
from dejaqueue.model import Topic
from dejaqueue.times import show_instant

DOCUMENT: Final = "restore"
NUMBER_TRIES: Final = 8
"""Each is lost to a change of the catalogue that somebody else made meanwhile."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What to restore of a backup.

    Attributes:
        topics: their names; () = all.
        new_name: of the one topic that is restored; "" = its own.
        until_ms: as of this instant, UTC, which the manifest reaches (backup/instants.py); None =
            as of the backup.
        skips_damaged: leave out topics that are damaged in the backup, instead of refusing it; of
            the pieces behind it, the damaged one and those behind that.
        follows: as far as the pieces behind the backup go, or to `until_ms` within them.
    """

    topics: tuple[str, ...] = ()
    new_name: str = ""
    until_ms: int | None = None
    skips_damaged: bool = False
    follows: bool = False

    def check(self) -> None:
        """Raise BadRequest if it cannot be meant."""
        if self.new_name and len(self.topics) != 1:
            raise BadRequest("as", "used with one --topic", self.new_name)


@dataclass(slots=True)
class RestoreReport:
    """What a restore has done.

    Attributes:
        messages: how many live messages were written.
        voided: of these, how many were leased, and come at once.
        damaged: what was left out, and why.
        hashes: of each partition, its state at the cut, before leases were made void.
    """

    backup: str = ""
    cut_ms: int = 0
    topics: list[str] = field(default_factory=list)
    partitions: int = 0
    messages: int = 0
    voided: int = 0
    damaged: list[str] = field(default_factory=list)
    hashes: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; hashes in hexadecimal digits."""
        hashes = {place: f"{number:016x}" for place, number in self.hashes.items()}
        return asdict(self) | {"hashes": hashes}


class _WrappedKeys:
    """The wrapped data keys of a backup, where a store would have them."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = {int(name, 16): text for name, text in texts.items()}

    def data_key_numbers(self) -> list[int]:
        return list(self._texts)

    def load_data_key(self, number: int) -> str | None:
        return self._texts.get(number)

    def store_data_key(self, number: int, text: str) -> None:
        self._texts[number] = text


def keys_of(
    manifest: Manifest, masters: Sequence[MasterKey], later: dict[str, str] | None = None
) -> DataKeys | None:
    """The data keys of a backup; None = it is not encrypted.

    Args:
        later: those that pieces behind it have, as in manifests.

    Raises:
        EncryptionKeyMissing: no master key was given, or another one is needed.
    """
    wrapped = manifest.data_keys | (later or {})
    if not wrapped:
        return None
    if not masters:
        raise EncryptionKeyMissing(
            f"backup {manifest.id} is encrypted, and encryption.master_key is not set"
        )
    return DataKeys(_WrappedKeys(wrapped), masters, is_new=False)


def cipher_of(manifest: Manifest, masters: Sequence[MasterKey]) -> Cipher | None:
    """What opens a backup; None = it is not encrypted. Raises as `keys_of`."""
    keys = keys_of(manifest, masters)
    return None if keys is None else keys.cipher("backup")


def check_finished(store: JournalStore) -> None:
    """Refuse a store into which a restore was begun and not finished. Raises Refused."""
    text = store.load_document(DOCUMENT)
    if text is not None and not json.loads(text)["done"]:
        backup = json.loads(text)["backup"]
        raise Refused(
            f"backup {backup} was not restored to its end here: run `dejaq restore` again"
        )


class PlacePort(Protocol):
    """What is known beside a store of where it is restored into."""

    def lays_out(self, rows: Mapping[str, TopicRow], slots: int) -> None:
        """Hear by their names which topics are about to be made in a cluster of so many slots: what
        is stored of them lies where brokers will look."""

    def put_back_keys(self, text: str) -> bool:
        """Have the API keys of a backup, unless there are some; False = they are a document of the
        store, as others are."""


class Restore:
    """One restore.

    Args:
        archive, manifest: the backup.
        store: where it goes; nobody else has it open.
        masters: keys to open the backup with.
        report: told what is done, a line at a time.
        place: of the store; None = a broker alone has it.
    """

    def __init__(
        self,
        archive: Archive,
        manifest: Manifest,
        store: JournalStore,
        masters: Sequence[MasterKey] = (),
        report: Callable[[str], None] = lambda _: None,
        place: PlacePort | None = None,
    ) -> None:
        self._archive, self._manifest, self._store = archive, manifest, store
        self._masters = masters
        self._cipher = cipher_of(manifest, masters)
        self._tail: ArchiveTail | None = None
        self._report, self._place = report, place
        self._restored = RestoreReport(manifest.id, manifest.cut_ms)
        self._decisions = ArchivedDecisions(lambda *_: {}, ())
        self._source: FoundedCluster | None = None
        """The cluster that the backup is of."""

    def run(self, plan: RestorePlan) -> RestoreReport:
        """Restore.

        Raises:
            BadRequest, TopicUnknown: the backup has no such topic. TopicExists: the store has one
                of the name. Refused: another restore was begun there. JournalDamaged: something is
                missing in the backup, or is not what was stored. EncryptionKeyMissing. Unavailable,
                ResourceExhausted: run it again.
        """
        plan.check()
        if plan.until_ms is not None:
            self._restored.cut_ms = plan.until_ms
        manifest, store = self._manifest, self._store
        with ExitStack() as ends:
            if plan.follows and manifest.chain:
                kind = StrandTail if manifest.in_strands else ArchiveTail
                self._tail = ends.enter_context(kind(manifest))
            return self._run(plan, store)

    def _run(self, plan: RestorePlan, store: JournalStore) -> RestoreReport:
        manifest = self._manifest
        what = f"{manifest.store}/{CATALOGUE}"
        state = CatalogueState.from_bytes(self._archive.get(manifest.catalogue, what, self._cipher))
        if self._tail is not None:
            plan = self._read_tail(self._tail, plan)
            self._tail.change(state)
        rows = self._chosen(state, plan)
        damaged = self._damaged(rows, plan)
        rows = [row for row in rows if row.topic.name not in damaged]
        homes = () if plan.new_name else {row.topic.name for row in rows}
        self._decisions = ArchivedDecisions(partial(self._decided, state, plan), homes)
        log = CatalogueLog(store)
        self._source = state.cluster
        try:
            facts = self._begin(rows, {} if plan.topics else state.tombstones, plan, log)
            for name in facts["ids"]:
                if log.state.next_ids(name) < state.next_ids(name):
                    _raise_ids(name, state.next_ids(name), log)
            if log.state.cluster is not None:
                slots = log.state.cluster.slots
                rows = [replace(row, start=self._start(row, slots)) for row in rows]
                if self._place is not None:
                    named = {plan.new_name or row.topic.name: row for row in rows}
                    self._place.lays_out(named, slots)
            for row in rows:
                self._restore_topic(row, plan.new_name or row.topic.name, plan.until_ms, log)
        finally:
            log.close()
        if not plan.topics:
            for name, text in manifest.documents.items():
                if name == KEYS and self._place is not None and self._place.put_back_keys(text):
                    continue
                if store.load_document(name) is None:
                    store.store_document(name, text)
        store.store_document(DOCUMENT, json.dumps(facts | {"done": True}))
        return self._restored

    def _read_tail(self, tail: ArchiveTail, plan: RestorePlan) -> RestorePlan:
        """Read what is behind the backup, up to what is asked for, before anything is written; what
        of it is to be done by the times of entries."""
        manifest, restored = self._manifest, self._restored
        text = self._store.load_document(DOCUMENT)
        begun: dict[str, Any] = {"done": True} if text is None else json.loads(text)
        bucket = self._archive.bucket
        self._report("reading the archive")
        # One that was broken off goes on to where it was going, though there is more by now.
        last = None if begun["done"] else begun.get("piece")
        damaged = restored.damaged.append if plan.skips_damaged else None
        if isinstance(tail, StrandTail):
            tail.read_strands(bucket, until_ms=plan.until_ms, last=last, damaged=damaged)
        else:
            chain = LogChain(bucket, manifest.chain)
            tail.read(chain, until_ms=plan.until_ms, last=last, damaged=damaged)
        tail.keys = keys_of(manifest, self._masters, tail.data_keys)
        cut_ms = tail.reach_ms if isinstance(tail, StrandTail) and tail.clocks > 1 else 0
        reach_ms = max(manifest.cut_ms, tail.at_ms, cut_ms)
        if plan.until_ms is not None and plan.until_ms > reach_ms:
            raise BadRequest("to", f"up to {show_instant(reach_ms)}", show_instant(plan.until_ms))
        if plan.until_ms is None or cut_ms:
            restored.cut_ms = max(manifest.cut_ms, tail.at_ms)
        return replace(plan, until_ms=None) if cut_ms else plan

    # --- what is restored ---------------------------------------------------------------------

    def _chosen(self, state: CatalogueState, plan: RestorePlan) -> list[TopicRow]:
        for name in plan.topics:
            if name not in state.rows:
                raise TopicUnknown(name)
        rows = [row for name, row in state.rows.items() if not plan.topics or name in plan.topics]
        if plan.new_name:
            rows = [replace(row, topic=replace(row.topic)) for row in rows]
            replace(rows[0].topic, name=plan.new_name).check()
        return rows

    def _copies(self, row: TopicRow) -> list[PartitionCopy]:
        key = row.topic.name, row.number
        found = [one for one in self._manifest.partitions if (one.topic, one.topic_number) == key]
        if self._tail is not None:
            known = {one.partition for one in found}
            found += [
                PartitionCopy(*key, row.topic.name, partition, 0, None, ())
                for partition in self._tail.partitions(row.number)
                if partition not in known
            ]
        return found

    def _damaged(self, rows: list[TopicRow], plan: RestorePlan) -> set[str]:
        """Look at every piece before anything is written; the topics that are damaged."""
        found: dict[str, list[str]] = {}
        for row in rows:
            copies = tuple(self._copies(row))
            partial = replace(self._manifest, partitions=copies)
            self._report(f"checking {row.topic.name}")
            damage = list(self._archive.damage(partial))
            if damage:
                found[row.topic.name] = damage
        self._restored.damaged += [text for texts in found.values() for text in texts]
        if found and not plan.skips_damaged:
            shown = "; ".join(self._restored.damaged[:5])
            raise JournalDamaged(
                f"backup {self._manifest.id} is damaged ({len(self._restored.damaged)} pieces): "
                f"{shown}; with --skip-damaged all but the topics {', '.join(found)} are restored"
            )
        return set(found)

    def _begin(
        self,
        rows: list[TopicRow],
        tombstones: Collection[str],
        plan: RestorePlan,
        log: CatalogueLog,
    ) -> dict[str, Any]:
        """Note what is restored; what was broken off is taken back, but for topics that are whole.

        Returns:
            Its facts; `ids` are names of deleted topics whose ids are not to be given again.
        """
        known = log.state.rows.keys() | log.state.leaving.keys()
        names = [plan.new_name or row.topic.name for row in rows]
        facts = {
            "backup": self._manifest.id,
            "store": self._manifest.store,
            "topics": names,
            "until_ms": plan.until_ms,
            "piece": None if self._tail is None else self._tail.number,
        }
        text = self._store.load_document(DOCUMENT)
        begun: dict[str, Any] = {"done": True} if text is None else json.loads(text)
        if begun["done"]:
            if log.state.cluster is not None and known:
                raise Refused(
                    f"cluster {log.state.cluster.id} has {len(known)} topics: a backup is restored "
                    "into one that has none"
                )
            there = [name for name in names if name in known]
            if there:
                raise TopicExists(
                    f"topic {there[0]} is there already, one of {len(there)} that are to be "
                    "restored: choose others with --topic, or another name with --as"
                )
            made = [one for one in self._store.made() if not one.startswith(OWN_PREFIX)]
            if not log.state.revision and made:
                raise Refused(f"there are journals without a catalogue: {', '.join(made[:5])}")
            begun = facts | {"ids": [one for one in tombstones if one not in known], "done": False}
            self._store.store_document(DOCUMENT, json.dumps(begun))
            return begun
        if {name: begun.get(name) for name in facts} != facts:
            raise Refused(
                f"a restore of backup {begun['backup']}, {len(begun['topics'])} topics, was "
                "begun there: finish that first, or begin in an empty place"
            )
        made = self._store.made()
        if log.state.cluster is not None:
            self._drop_astray(made, log)
        for name in (*names, *begun["ids"]):
            self._take_back(name, log, made)
        return begun

    def _take_back(self, name: str, log: CatalogueLog, made: Sequence[str]) -> None:
        """Have a topic that is not whole be gone: its number cannot be used again."""
        row = log.state.rows.get(name)
        if row is not None and not row.is_used:
            if log.state.cluster is not None and _in_cluster(name, row.number) in made:
                return  # there its row comes last
            _apply(log, DeletingTopic(name))
        row = log.state.leaving.get(name)
        if row is not None:
            is_alone = log.state.cluster is None
            self._store.drop(name if is_alone else _in_cluster(name, row.number))
            # Brokers of a cluster, which may be running, bury it, too.
            log.change(lambda: DeletedTopic(name) if name in log.state.leaving else None)

    def _drop_astray(self, made: Sequence[str], log: CatalogueLog) -> None:
        """Drop journals of which no topic knows: what was broken off was writing them."""
        log.read()  # after `made`: whoever makes journals has a row before
        rows = (*log.state.rows.values(), *log.state.leaving.values())
        known = {_in_cluster(row.topic.name, row.number) for row in rows}
        for name in made:
            if name not in known and not name.startswith(OWN_PREFIX):
                self._store.drop(name)

    # --- topics -------------------------------------------------------------------------------

    def _restore_topic(
        self, row: TopicRow, name: str, until_ms: int | None, log: CatalogueLog
    ) -> None:
        copies = self._copies(row)
        topic = replace(row.topic, name=name)
        self._restored.topics.append(name)
        if log.state.cluster is not None:
            self._restore_in_cluster(topic, row, until_ms, log)
            self._report(f"restored {name}: {len(copies)} partitions")
            return
        if name in log.state.rows:  # whole, before it was broken off
            return
        self._make(topic, row, log)
        if copies:
            self._store.make(name, log.state.rows[name].number)
            for copy in copies:
                self._restore_partition(copy, name, name, until_ms)
            _apply(log, UsedTopic(name))
        self._report(f"restored {name}: {len(copies)} partitions")

    def _make(self, topic: Topic, row: TopicRow, log: CatalogueLog) -> None:
        if log.state.next_ids(topic.name) < row.ids_from:
            _raise_ids(topic.name, row.ids_from, log)
        counts = row.counts or (topic.partitions,)
        _apply(log, MadeTopic(replace(topic, partitions=counts[0])))
        for count in counts[1:]:
            _apply(log, AlteredTopic(replace(topic, partitions=count)))

    def _restore_in_cluster(
        self, topic: Topic, row: TopicRow, until_ms: int | None, log: CatalogueLog
    ) -> None:
        """Restore a topic of a cluster, whose brokers may be running: they know nothing of it until
        its journals are whole."""
        name, copies = topic.name, self._copies(row)
        if name not in log.state.rows:
            if log.state.next_ids(name) < row.ids_from:
                _raise_ids(name, row.ids_from, log)
            self._make_in_cluster(topic, row, until_ms, log)
        for count in (row.counts or (topic.partitions,))[1:]:
            if log.state.rows[name].topic.partitions < count:
                _apply(log, AlteredTopic(replace(topic, partitions=count)))
        if copies and not log.state.rows[name].is_used:
            _apply(log, UsedTopic(name))

    def _make_in_cluster(
        self, topic: Topic, row: TopicRow, until_ms: int | None, log: CatalogueLog
    ) -> None:
        """Write the journals of a topic under the number that it gets next, and then its row."""
        counts = row.counts or (topic.partitions,)
        restored = self._restored
        made = MadeTopic(replace(topic, partitions=counts[0]), row.start)
        for _ in range(NUMBER_TRIES):
            log.read()
            number = log.state.revision + 1
            journals = _in_cluster(topic.name, number)
            before = restored.messages, restored.voided, restored.partitions
            self._store.make(journals, number)
            for copy in self._copies(row):
                self._restore_partition(copy, topic.name, journals, until_ms)
            log.change(lambda number=number: made if log.state.revision + 1 == number else None)  # type: ignore[misc]
            found = log.state.rows.get(topic.name)
            if found is not None and found.number == number:
                return
            self._store.drop(journals)
            restored.messages, restored.voided, restored.partitions = before
        raise Unavailable("topics are made in this cluster meanwhile: run it again", 1_000)

    def _start(self, row: TopicRow, slots: int) -> int:
        """The slot of a topic's first shard, of so many: where it was, if there were as many."""
        if self._source is not None and self._source.slots == slots:
            return row.start
        return int(xxhash.xxh3_64_intdigest(row.topic.name.encode()) % slots)

    def _archived(self, copy: PartitionCopy) -> ArchivedPartition:
        later = None
        if self._tail is not None:
            number = partition_number(copy.topic_number, copy.partition)
            later = partial(self._tail.entries, number)
        return ArchivedPartition(self._archive, self._manifest.store, copy, self._cipher, later)

    def _decided(
        self, state: CatalogueState, plan: RestorePlan, topic: str, partition: int
    ) -> Decisions:
        """What a home had decided, which may be in a topic that is not restored, or was being
        deleted. Raises as `ArchivedPartition.views`."""
        row = state.rows.get(topic) or state.leaving.get(topic)
        if row is None:
            return {}
        found = {text: (commit, record) for text, commit, record in row.decided}
        for copy in self._copies(row):
            if copy.partition == partition:
                try:
                    views = self._archived(copy).views(plan.until_ms)
                except JournalDamaged as damage:
                    if not plan.skips_damaged:
                        raise
                    self._restored.damaged.append(
                        f"{damage}; what {copy.place} had decided of transactions is not known"
                    )
                else:
                    found |= views.unnamed.decisions
        return found

    def _restore_partition(
        self, copy: PartitionCopy, name: str, journals: str, until_ms: int | None
    ) -> None:
        archived = self._archived(copy)
        views = archived.views(until_ms)
        restored = self._restored
        restored.hashes[f"{name}/{copy.partition}"] = views.state_hash()
        self._decisions.settle(views)
        restored.voided += void_leases(views)
        journal = self._store.open(journals, copy.partition, only_made=True)
        try:
            restored.messages += write(journal, archived, views)
        finally:
            journal.close()
        restored.partitions += 1


def _in_cluster(name: str, number: int) -> str:
    """What a topic of a cluster is called in the store of its journals (cluster/catalogue.py)."""
    return f"{name}.{number}"


def _raise_ids(name: str, ids_from: int, log: CatalogueLog) -> None:
    """A topic of a name was there, and is gone: the next one's ids begin behind."""
    for change in (
        MadeTopic(Topic(name)),
        DeletingTopic(name),
        ClosedTopic(name, ids_from),
        DeletedTopic(name),
    ):
        _apply(log, change)


def _apply(log: CatalogueLog, change: Change) -> None:
    log.change(lambda: change)
