from __future__ import annotations

from collections import Counter

from dejaqueue.cluster.placement import preferred, unit_of
from dejaqueue.model import Topic


def by_name(*topics: Topic) -> dict[str, Topic]:
    return {topic.name: topic for topic in topics}


def test_nobody_is_preferred_where_there_is_nobody() -> None:
    assert preferred("t", []) is None


def test_everybody_comes_to_the_same_answer() -> None:
    for number in range(50):
        assert preferred(f"t{number}", ["a", "b", "c"]) == preferred(f"t{number}", ["c", "a", "b"])


def test_units_are_spread() -> None:
    counts = Counter(preferred(f"t{number}", "abcd") for number in range(4_000))
    assert set(counts) == set("abcd")
    assert all(850 < count < 1_150 for count in counts.values())


def test_only_what_a_new_node_gets_moves() -> None:
    for number in range(500):
        before, after = preferred(f"t{number}", "abc"), preferred(f"t{number}", "abcd")
        assert after in (before, "d")


def test_only_what_a_lost_node_had_moves() -> None:
    for number in range(500):
        before = preferred(f"t{number}", "abc")
        if before != "b":
            assert preferred(f"t{number}", "ac") == before


def test_a_topic_goes_with_its_dead_letters() -> None:
    topics = by_name(Topic("t"), Topic("t.dead"), Topic("u", dead_letter="bin"), Topic("bin"))
    assert unit_of("t.dead", topics) == unit_of("t", topics) == "t"
    assert unit_of("u", topics) == unit_of("bin", topics) == "bin"


def test_a_long_name_goes_with_the_topic_whose_name_was_cut_for_it() -> None:
    topic = Topic("x" * 255)
    assert unit_of(topic.name, by_name(topic)) == unit_of(topic.dead_letter_name, by_name(topic))


def test_a_ring_of_dead_letters_is_one_unit() -> None:
    topics = by_name(
        Topic("a", dead_letter="b"), Topic("b", dead_letter="c"), Topic("c", dead_letter="b")
    )
    assert {unit_of(name, topics) for name in topics} == {"b"}
