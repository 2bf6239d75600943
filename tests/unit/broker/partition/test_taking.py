"""Requests are applied in order; small batches are one entry, looks see what is durable."""

from __future__ import annotations

from dataclasses import replace

from dejaqueue.broker.partition.requests import ChangeRequest, LookRequest, RenameRequest, Request
from dejaqueue.broker.partition.taking import MERGE_ROWS_MAX, STEP_US_MAX, take_requests
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.commands import Cancel
from dejaqueue.errors import BadRequest
from dejaqueue.settings import BrokerSettings, DispatchSettings
from tests.unit.broker.cores import Served, sequences


def take(served: Served, *requests: Request) -> int:
    """How many entries the requests made."""
    before = served.core.next_position()
    for request in requests:
        served.inbox.put(request)
    take_requests(served.core, served.inbox, served.admission)
    return served.core.next_position() - before


def test_small_batches_are_one_entry__and_each_gets_its_ids() -> None:
    served = Served()
    assert take(served, *(served.request([b"%d" % n] * 2) for n in range(3))) == 1
    served.core.commits.commit_all()
    assert [reply.first_id for reply in served.replies] == [0, 2, 4]


def test_a_large_batch_and_what_follows_are_entries_of_their_own__in_order() -> None:
    served = Served()
    large = served.request([b"x"] * MERGE_ROWS_MAX)
    requests = (served.request([b"a"]), large, served.request([b"b"]))
    assert take(served, *requests) == 3
    served.core.commits.commit_all()
    assert [reply.first_id for reply in served.replies] == [0, 1, 1 + MERGE_ROWS_MAX]


def test_batches_of_senders_with_other_rights_are_not_joined() -> None:
    served = Served()
    mine = replace(served.request([b"a"]), owner="shop")
    assert take(served, served.request([b"b"]), mine, served.request([b"c"])) == 3


def test_a_look_sees_what_came_before_it_durable() -> None:
    served = Served()
    seen: list[tuple[int, int]] = []

    def look(core: PartitionCore) -> None:
        seen.append((core.position, core.engine.counts.scheduled))

    take(served, served.request([b"a"]), LookRequest(look), served.request([b"b"]))
    assert seen == [(2, 1)]
    assert served.core.next_position() == 4


def test_a_full_group_ends_the_step__the_rest_waits() -> None:
    served = Served(settings=BrokerSettings(dispatch=DispatchSettings(group_rows_max=5)))
    rows = [b"x"] * 5
    take(served, served.request(rows), served.request(rows))
    assert not served.inbox.is_empty
    served.core.commits.commit_all()
    take(served)
    assert served.inbox.is_empty


def test_a_step_takes_requests_no_longer_than_its_time__the_rest_waits() -> None:
    served = Served()

    def cancels(core: PartitionCore) -> None:
        core.apply(Cancel(core.now_ms(), sequences(3)))
        served.clock.advance(us=STEP_US_MAX)

    requests = [ChangeRequest(cancels, served.replies.append, number) for number in range(3)]
    assert take(served, *requests) == 1
    assert take(served) == 1
    assert not served.inbox.is_empty
    assert take(served) == 1
    assert served.inbox.is_empty


def test_what_goes_back_is_left_to_who_takes_it() -> None:
    served = Served()
    request = served.request([b"a"])
    request.goes_back = lambda _request, core: core is served.core
    assert take(served, request) == 0
    served.core.commits.commit_all()
    assert served.replies == []


def test_a_change_that_refuses_says_so__one_that_applied_is_durable_when_it_is_answered() -> None:
    served = Served()

    def refuses(core: PartitionCore) -> None:
        raise BadRequest("x", "a y", 7)

    def cancels(core: PartitionCore) -> None:
        core.apply(Cancel(core.now_ms(), sequences(3)))

    take(
        served,
        ChangeRequest(refuses, served.replies.append, 1),
        ChangeRequest(cancels, served.replies.append, 2),
        RenameRequest(3, 1, "all", served.replies.append, sequences(3), cancel=True),
    )
    assert served.replies == []
    served.core.commits.commit_all()
    assert [reply.number for reply in served.replies] == [1, 2, 3]
    assert isinstance(served.replies[0].error, BadRequest)
    assert served.replies[1].error is None
