"""Dictionary: codes of names, and when they are used again."""

from __future__ import annotations

import numpy as np

from dejaqueue.engine.arrays import Int64s, Words
from dejaqueue.engine.dictionary import Dictionary, of_runs, to_runs


def words(*names: str) -> Words:
    unique = tuple(dict.fromkeys(names))
    return Words(unique, np.array([unique.index(name) for name in names], dtype=np.int32))


def test_a_name_keeps_its_code__and_nothing_is_code_0() -> None:
    dictionary = Dictionary()
    assert dictionary.codes(words("a", "", "b", "a")).tolist() == [1, 0, 2, 1]
    assert dictionary.codes(words("b", "c")).tolist() == [2, 3]
    assert [dictionary.code(name) for name in ("", "a", "nobody")] == [0, 1, -1]


def test_codes_of_names_that_nobody_has_are_used_again() -> None:
    dictionary = Dictionary()
    names = [f"name {number}" for number in range(1_100)]
    codes = dictionary.codes(words(*names))
    dictionary.come(codes)
    dictionary.go(codes[10:20])
    assert sorted(dictionary.codes(words(*[f"new {n}" for n in range(5)]))) == [11, 12, 13, 14, 15]
    assert dictionary.code("name 10") == -1
    assert dictionary.code("name 9") == 10


def test_a_name_of_the_same_batch_is_not_forgotten_for_a_new_one() -> None:
    dictionary = Dictionary()
    dictionary.codes(words(*[f"name {number}" for number in range(1_100)]))
    codes = dictionary.codes(words("name 7", "new"))
    assert dictionary.names[codes[0]] == "name 7"
    assert dictionary.names[codes[1]] == "new"


def test_who_still_remembers_a_code_keeps_it() -> None:
    def forget(codes: Int64s) -> Int64s:
        kept: Int64s = codes[codes % 2 == 0]
        return kept

    dictionary = Dictionary()
    dictionary.codes(words(*[f"name {number}" for number in range(1_100)]))
    assert dictionary.codes(words("x", "y"), forget).tolist() == [2, 4]


def test_a_dictionary_comes_back_from_its_values() -> None:
    dictionary = Dictionary()
    dictionary.codes(words(*[f"name {number}" for number in range(1_100)]))
    dictionary.codes(words("x"))
    again = Dictionary.from_values(dictionary.to_values())
    for one in (dictionary, again):
        assert (
            one.codes(words("x", "name 3", "y")).tolist()
            == one.codes(words("x", "name 3", "y")).tolist()
        )
    assert again.to_values() == dictionary.to_values()


def test_runs_are_read_and_written_alike() -> None:
    for runs in ([], [("a", 3)], [("", 1), ("a", 2), ("", 1)], [("b", 1), ("a", 1), ("b", 5)]):
        found = of_runs(runs)
        assert to_runs(found) == runs
        assert found.names == tuple(dict.fromkeys(name for name, _ in runs))
        assert found.indices.size == sum(count for _, count in runs)
        assert found.indices.dtype == np.int32


def test_names_that_no_row_has_are_not_there() -> None:
    assert of_runs([("a", 0), ("b", 2), ("c", 0)]).names == ("b",)
    picked = words("a", "b", "c").take(np.array([2, 2, 1]))
    assert of_runs(to_runs(picked)).names == ("c", "b")
