"""Bugs planted one at a time while tests of a part run: each names the tests that must notice.

For what a simulation meets too seldom. `plant.py` plants one in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dejaqueue.broker.partition import duplicates
from dejaqueue.broker.partition.partition import Partition
from dejaqueue.broker.payloads import payloads
from dejaqueue.broker.topic import routing
from dejaqueue.client import streamed as client_streamed
from dejaqueue.engine import apply, rules
from dejaqueue.engine.level_shares import LevelShares
from dejaqueue.engine.shares import FlatShares, NestedShares
from dejaqueue.errors import DejaQError
from dejaqueue.http.leasing.session import Arrival, SharedSession
from dejaqueue.http.routes import sending
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.segments import files, log, recovery
from dejaqueue.model import MessageState, RowStatus
from dejaqueue.payloads import streamed_store
from dejaqueue.schema import texts

Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, tuple[Mutant, tuple[str, ...]]] = {}


def mutant(*tests: str) -> Callable[[Mutant], Mutant]:
    """Register a planted bug, and who must notice it."""

    def register(function: Mutant) -> Mutant:
        MUTANTS[function.__name__] = function, tests
        return function

    return register


@mutant("tests/rules/test_growing.py")
def forgets_batches_of_before_it_grew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(routing, "known_batches", lambda topic, route, producer: {})


@mutant("tests/rules/test_growing.py")
def notes_not_which_rows_a_part_has(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(routing, "_strays", lambda homes, partition, rows: ())


@mutant("tests/rules/test_everything_is_answered.py")
def forgets_who_waits_when_a_step_breaks_off(patch: pytest.MonkeyPatch) -> None:
    inner = Partition._fail

    def fail(self: Partition, error: DejaQError) -> None:
        self.inbox._in_hand.clear()
        inner(self, error)

    patch.setattr(Partition, "_fail", fail)


@mutant("tests/rules/test_rule_08_fair.py")
def knows_no_weights(patch: pytest.MonkeyPatch) -> None:
    inner = FlatShares.name
    patch.setattr(FlatShares, "name", lambda self, code, name, weight: inner(self, code, name, 1))
    patch.setattr(FlatShares, "weigh", lambda self, codes, weights: None)
    nested = NestedShares.__init__
    patch.setattr(NestedShares, "__init__", lambda self, weights: nested(self, {}))
    patch.setattr(NestedShares, "reweigh", lambda self, weights: None)
    level = LevelShares.__init__
    patch.setattr(LevelShares, "__init__", lambda self, weights: level(self, {}))
    patch.setattr(LevelShares, "reweigh", lambda self, weights: None)


@mutant("tests/rules/test_rule_16_clocks.py")
def follows_a_clock_that_goes_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "now_ms", lambda self: self.clock.now_ms())


@mutant("tests/unit/journal/test_format.py")
def believes_every_entry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        entry_format, "verify", lambda view, at, head: entry_format.stored_checksum(view, at)
    )


@mutant("tests/crash/test_segment_journal.py")
def goes_on_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    """As if the next sync could make up for it."""
    patch.setattr(log.ShardLog, "_fail", lambda self, failure: None)


@mutant("tests/rules/test_rule_14_bounded.py")
def knows_no_limit_of_bytes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dejaqueue.broker.partition.admission.shortage", lambda *rest: None)


@mutant("tests/rules/test_rule_05_backoff.py")
def never_waits_longer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules.Rules, "waits_ms", lambda self, sequences, attempts: None)


@mutant("tests/rules/test_rule_11_keys.py")
def the_last_of_a_batch_keeps_the_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(duplicates, "_KEPT", np.uint8(RowStatus.DUPLICATE))


@mutant("tests/rules/test_rule_09_move_and_cancel.py")
def says_ok_to_rows_that_are_not_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply, "_PRODUCER_STATUSES", np.zeros(len(MessageState), dtype=np.uint8))


@mutant("tests/unit/http/leasing/test_session.py")
def forgets_the_credit_of_rows_that_are_missing(patch: pytest.MonkeyPatch) -> None:
    """Rows whose payload cannot be read now give their credit back, which somebody has to know."""
    inner = SharedSession.arrived

    def arrived(self: SharedSession, arrivals: list[Arrival]) -> None:
        there = [one for one in arrivals if one.batch is not None]
        leased = sum(len(one.push.leased.sequences) for one in there)
        self._given -= leased - sum(one.batch.num_rows for one in there if one.batch is not None)
        inner(self, arrivals)

    patch.setattr(SharedSession, "arrived", arrived)


@mutant("tests/unit/client/test_streamed.py")
def reads_whatever_part_comes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(client_streamed, "check_part", lambda parts, index, content: None)


@mutant("tests/unit/payloads/test_streamed_store.py")
def seals_all_parts_alike(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(streamed_store, "_nonce", lambda index: bytes(12))


@mutant("tests/unit/broker/payloads/test_streamed.py", "tests/rules/test_rule_22_streamed.py")
def lets_each_message_keep_an_upload(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(payloads, "keep_parts", lambda store, reference: True)


@mutant("tests/unit/http/test_arrow_bounds.py")
def unpacks_whatever_comes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sending, "unpacked_bytes", len)


@mutant("tests/unit/journal/segments/test_files.py", "tests/crash/test_segment_journal.py")
def a_short_write_is_the_end_of_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(files, "_rest", lambda chunk, written: [])


@mutant("tests/crash/test_segment_journal.py")
def does_not_write_the_last_append_again(patch: pytest.MonkeyPatch) -> None:
    """What a dead process left in the machine's memory is served, and lost at the next cut."""
    patch.setattr(recovery, "_make_durable", lambda segment, memory, end, cut: None)


@mutant("tests/rules/test_a_bad_row.py")
def reads_the_partition_again_for_any_failure(patch: pytest.MonkeyPatch) -> None:
    def unguarded(self: Partition, requests: object, handle: Callable[[], None]) -> bool:
        handle()
        return True

    patch.setattr(Partition, "guarded", unguarded)


@mutant("tests/rules/test_a_bad_row.py")
def hands_out_stored_bytes_as_they_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(texts, "mended_batch", lambda batch: batch)
