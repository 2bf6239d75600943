"""What a partition carries, measured on a broker in this process. The figure is the machine's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dejaqueue
from dejaqueue.pipelines.load import measure as module
from dejaqueue.pipelines.load.measure import measure_partition


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[dejaqueue.Client]:
    monkeypatch.setattr(module, "MESSAGES", 2_000)
    monkeypatch.setattr(module, "BATCH_ROWS", 500)
    with dejaqueue.open("memory:") as client:
        client.create_topic("mine")
        yield client


def test_all_messages_go_through_one_partition__and_nothing_is_left(
    client: dejaqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    delete = client.delete_topic

    def look(name: str) -> None:
        stats = client.stats(name)
        seen.append((client.topic(name).partitions, stats["acked"]))
        delete(name)

    monkeypatch.setattr(client, "delete_topic", look)
    assert measure_partition(client) > 0
    assert seen == [(1, 2_000)]
    assert [topic.name for topic in client.topics()] == ["mine"]


def test_the_topic_is_deleted_where_it_breaks_off(
    client: dejaqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "consume_batches", fails)
    with pytest.raises(KeyboardInterrupt):
        measure_partition(client)
    assert [topic.name for topic in client.topics()] == ["mine"]
