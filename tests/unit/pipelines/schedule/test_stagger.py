"""Stagger: the cap is kept to the message, wherever a second begins; slots are given once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from dejaqueue.pipelines.schedule.stagger import Rate, Slots, Stretch, allocate, per_second

NOW_MS = 1_800_000_000_000
rates = some.builds(
    Rate, some.integers(1, 5_000), some.sampled_from([1_000, 60_000, 3_600_000])
) | some.just(Rate(1_000_000))


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("500", Rate(500)),
        ("1_000/s", Rate(1_000)),
        ("30/m", Rate(30, 60_000)),
        ("1/h", Rate(1, 3_600_000)),
    ],
)
def test_a_rate_is_read(text: str, rate: Rate) -> None:
    assert Rate.parse(text) == rate


@pytest.mark.parametrize("text", ["0", "-1", "many", "10/d", "1.5", "1000001", ""])
def test_another_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a rate is like"):
        Rate.parse(text)


@given(rates, some.integers(0, 10**6), some.integers(0, 10**6))
def test_any_stretch_of_the_rates_length_has_just_so_many_slots(
    rate: Rate, instant: int, offset: int
) -> None:
    first_ms = NOW_MS + instant * 1_000 + offset
    first, last = rate.slot_at(first_ms), rate.slot_at(first_ms + rate.per_ms)
    assert last - first == rate.count
    assert rate.due_ms(first) >= first_ms > rate.due_ms(first - 1)
    # The load is even: neighbours are as far from each other as any others, to the millisecond.
    gaps = {rate.due_ms(slot + 1) - rate.due_ms(slot) for slot in range(first, first + 50)}
    assert max(gaps) - min(gaps) <= 1
    assert rate.slots_at(np.array([first_ms])).tolist() == [first]


@given(
    some.lists(
        some.tuples(some.integers(0, 300), some.integers(0, 40) | some.none(), some.integers(0, 60))
    )
)
def test_slots_are_given_once_and_the_first_that_are_free(
    asked: list[tuple[int, int | None, int]],
) -> None:
    slots, taken = Slots(), set[int]()
    for first, length, count in asked:
        last = None if length is None else first + length
        free = [s for s in range(first, (last if last is not None else 10_000)) if s not in taken]
        found = [s for start, n in slots.take(first, last, count) for s in range(start, start + n)]
        assert found == free[:count]
        taken.update(found)


@given(
    rates,
    some.lists(
        some.tuples(some.integers(0, 20_000), some.integers(1, 500)), min_size=1, max_size=12
    ),
)
def test_waves_are_whole__never_early__and_below_the_rate(
    rate: Rate, asked: list[tuple[int, int]]
) -> None:
    waves = [(NOW_MS + ms, count) for ms, count in sorted(asked)]
    stretches = allocate([(ms, count, None) for ms, count in waves], rate)
    slots = [s.first_slot + i for s in stretches for i in range(s.count)]
    assert len(set(slots)) == len(slots) == sum(count for _, count in waves)
    for number, (instant_ms, count) in enumerate(waves):
        mine = [s for s in stretches if s.wave == number]
        ranks = [s.first_rank + i for s in mine for i in range(s.count)]
        assert ranks == list(range(count))
        assert min(rate.due_ms(s.first_slot) for s in mine) >= instant_ms
    dues = np.sort([rate.due_ms(slot) for slot in slots])
    within = np.searchsorted(dues, dues + rate.per_ms) - np.arange(len(dues))
    assert within.max() <= rate.count


def test_a_wave_that_has_to_stop_leaves_its_slots_to_others() -> None:
    rate = Rate(1)  # slot s is at s seconds
    waves = [(0, 5, [(0, 3_000), (10_000, 20_000)]), (0, 4, None)]
    found = [(s.wave, s.first_rank, s.count, s.first_slot) for s in allocate(waves, rate)]
    assert found == [(0, 0, 3, 0), (0, 3, 2, 10), (1, 0, 4, 3)]


@given(rates, some.lists(some.tuples(some.integers(0, 5_000), some.integers(1, 3_000)), max_size=6))
def test_the_load_of_stretches_is_that_of_their_slots(
    rate: Rate, asked: list[tuple[int, int]]
) -> None:
    at, stretches = rate.slot_at(NOW_MS), []
    for gap, count in asked:
        stretches.append(Stretch(0, 0, count, at + gap))
        at += gap + count
    seconds, counts = per_second(stretches, rate)
    slots = [s.first_slot + i for s in stretches for i in range(s.count)]
    expected = np.unique([rate.due_ms(slot) // 1_000 for slot in slots], return_counts=True)
    assert seconds[counts > 0].tolist() == expected[0].tolist()
    assert counts[counts > 0].tolist() == expected[1].tolist()
