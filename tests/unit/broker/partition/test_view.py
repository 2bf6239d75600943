"""Views of a partition begin, change and end as the topic's settings say. Deliveries: rule 19."""

from __future__ import annotations

from typing import Any

from dejaqueue.broker.consumers.dispatch import Dispatcher
from dejaqueue.broker.counting import PartitionCounts
from dejaqueue.broker.partition.view import PartitionView, follow_subscriptions, follows
from dejaqueue.broker.shard.view_core import ViewCore
from dejaqueue.engine.engine import Engine
from dejaqueue.model import Topic
from tests.unit.broker.cores import Served


def topic(**subscriptions: dict[str, Any]) -> Topic:
    return Topic("t", subscriptions=subscriptions).check()


def follow(served: Served, changed: Topic) -> list[tuple[int, str, int]]:
    served.topic = changed
    follow_subscriptions(served.core, changed)
    assert follows(served.core)
    named = served.core.views.named.values()
    return [(view.number, view.name, view.engine.rules.max_attempts) for view in named]


def test_views_are_those_of_the_topic() -> None:
    served = Served()
    served.topic = topic(a={"born": 1})
    assert not follows(served.core)
    assert follow(served, topic(a={"born": 1})) == [(1, "a", 0)]
    assert follow(served, topic(a={"born": 1}, b={"born": 2})) == [(1, "a", 0), (2, "b", 0)]
    before = served.core.next_position()
    assert follow(served, topic(a={"born": 1, "max_attempts": 3}, b={"born": 2})) == [
        (1, "a", 3),
        (2, "b", 0),
    ]
    assert served.core.next_position() == before + 1  # what is as it was has no entry
    # Another one of the same name is another view.
    assert follow(served, topic(a={"born": 9}, b={"born": 2})) == [(2, "b", 0), (3, "a", 0)]
    assert follow(served, topic()) == []


def test_it_is_attached_to_what_was_read() -> None:
    served = Served()
    core = ViewCore(served.core, "a", lambda: served.topic.subscribed("a"), PartitionCounts())
    dispatcher = Dispatcher(10**12, lambda _number: True)
    view = PartitionView(core, dispatcher, ())
    view.attach()  # there is none yet
    assert served.core.seen_as == {}
    assert view.next_us() is None
    assert not view.after_append(is_idle=True)
    follow(served, topic(a={"born": 1}))
    view.attach()
    assert served.core.seen("a") is core
    assert isinstance(core.engine, Engine)
    served.send([b"x"])
    view.begin(is_asked=True)
    view.step()
    assert view.next_us() is None
    assert dispatcher.waiting.occupied == [0]  # nobody has credit for what is there
    view.end()
    follow(served, topic())
    view.attach()
    assert served.core.seen_as == {}
