"""Covers: the shape of kept rows, merging by question, ratios, and that the page says what is kept.

Not covered: measuring; test_quick_run.py does that.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import page, results
from bench.questions import throughput
from bench.results import FIELDS, Outcome, Row
from bench.targets import TARGETS, verdicts

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / "bench" / "results"


def row(**changed: Any) -> dict[str, Any]:
    whole = {
        "question": "throughput",
        "system": "dejaq",
        "case": "enqueue",
        "value": 1.0,
        "unit": "messages/s",
        "ratio": 2.0,
        "ratio_to": "redis",
    }
    return whole | changed


def test_a_row_of_the_agreed_shape_is_taken() -> None:
    results.check_rows([row(), row(case="single", ratio=None, ratio_to=None)])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"question": ""}, "question must be a text"),
        ({"system": 3}, "system must be a text"),
        ({"value": "fast"}, "value must be a number"),
        ({"value": float("nan")}, "value must be a number"),
        ({"value": True}, "value must be a number"),
        ({"ratio": None}, "ratio and ratio_to must both be there or neither"),
        ({"ratio": "3 times"}, "ratio must be a number"),
        ({"colour": "red"}, "fields must be"),
    ],
)
def test_a_row_of_another_shape_is_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"row 1: {text}"):
        results.check_rows([row(case="other"), row(**wrong)])


def test_a_row_without_a_field_is_refused() -> None:
    short = row()
    del short["unit"]
    with pytest.raises(ValueError, match="fields must be"):
        results.check_rows([short])


def test_the_same_case_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="throughput / dejaq / enqueue is there twice"):
        results.check_rows([row(), row(value=2.0)])


def test_merging_replaces_answered_questions_and_no_others() -> None:
    old = [row(question="scale"), row(), row(case="gone")]
    new = [row(value=9.0), row(question="lateness")]
    merged = results.merge(old, new)
    assert [(r["question"], r["value"]) for r in merged] == [
        ("throughput", 9.0),
        ("lateness", 1.0),
        ("scale", 1.0),
    ]


def test_storing_keeps_what_other_questions_found(tmp_path: Path) -> None:
    run = {"machine": {}, "command": "x"}
    results.store(tmp_path, "scale", Outcome([Row("scale", "dejaq", "a", 1, "s")]), run)
    results.store(tmp_path, "parts", Outcome([Row("parts", "dejaq", "b", 2, "s")]), run)
    results.store(tmp_path, "scale", Outcome([Row("scale", "dejaq", "a", 3, "s")]), run)
    rows, runs = results.load(tmp_path)
    assert [(r["question"], r["value"]) for r in rows] == [("scale", 3), ("parts", 2)]
    assert sorted(runs) == ["parts", "scale"]
    assert all(set(r) == set(FIELDS) for r in rows)


def test_nothing_measured_keeps_what_was_there(tmp_path: Path) -> None:
    results.store(tmp_path, "parts", Outcome(left_out=["parts"]), {})
    assert not (tmp_path / "latest.json").exists()


MEDIANS = {
    ("dejaq", "enqueue"): 900.0,
    ("dejaq", "enqueue_from_bytes"): 600.0,
    ("dejaq", "single"): 5.0,
    ("redis", "enqueue"): 300.0,
    ("beanstalkd", "enqueue"): 100.0,
    ("beanstalkd", "single"): 10.0,
    ("beanstalkd", "single_not_durable"): 50.0,
}


def test_each_row_of_dejaq_names_the_peer_of_its_ratio() -> None:
    rows = {(r.system, r.case): r for r in throughput.rows_of(MEDIANS)}
    assert (rows["dejaq", "enqueue"].ratio, rows["dejaq", "enqueue"].ratio_to) == (3.0, "redis")
    assert rows["dejaq", "enqueue_from_bytes"].ratio == 2.0
    assert (rows["dejaq", "single"].ratio, rows["dejaq", "single"].ratio_to) == (0.5, "beanstalkd")
    assert all(r.ratio is None for r in rows.values() if r.system != "dejaq")


def test_processor_time_is_what_a_core_does__beside_redis() -> None:
    costs = {("dejaq", "enqueue"): 2.0, ("redis", "enqueue"): 8.0, ("dejaq", "lease_ack"): 4.0}
    rows = {(r.system, r.case): r for r in throughput.rows_of(MEDIANS, costs)}
    own = rows["dejaq", "enqueue_per_core"]
    assert (own.value, own.ratio, own.ratio_to) == (500_000.0, 4.0, "redis")
    assert rows["redis", "enqueue_per_core"].value == 125_000.0
    assert rows["dejaq", "lease_ack_per_core"].ratio is None
    redis = {("redis", "single"): 2.0}
    (single,) = (r for r in throughput.rows_of(MEDIANS | redis) if r.case == "single_by_redis")
    assert (single.value, single.ratio, single.ratio_to) == (5.0, 2.5, "redis")


def test_without_its_peer_a_row_has_no_ratio() -> None:
    (alone,) = throughput.rows_of({("dejaq", "enqueue"): 900.0})
    assert (alone.ratio, alone.ratio_to) == (None, None)


def test_cases_come_in_the_order_of_the_question() -> None:
    cases = [r.case for r in throughput.rows_of(dict(reversed(MEDIANS.items())))]
    assert [case.partition("_")[0] for case in cases] == ["enqueue"] * 4 + ["single"] * 3


def test_a_target_is_reached_missed_or_not_measured() -> None:
    rows = [row(ratio=3.0), row(case="single", ratio=0.99, ratio_to="beanstalkd")]
    found = {(t.case, t.of): reached for t, _, reached in verdicts(rows) if t.question != "scale"}
    assert found["enqueue", "ratio"] is True
    assert found["enqueue", "value"] is False
    assert found["single", "ratio"] is False
    assert found["drained", "value"] is None


def test_a_target_beside_a_peer_that_was_missing_shows_the_rate() -> None:
    alone = row(question="doq", case="streams_both", value=1_234.0, ratio=None, ratio_to=None)
    told = "10 + 10 streams at once, one message a turn | ≥ 1 × doq |"
    assert f"{told} 1,234 messages/s, doq not measured | – |" in page.render([alone], {})
    assert f"{told} not measured | – |" in page.render([], {})
    assert f"{told} 2 × doq | yes |" in page.render([alone | {"ratio": 2.0, "ratio_to": "doq"}], {})


def test_every_target_is_of_a_question_that_is_asked() -> None:
    assert {target.question for target in TARGETS} <= set(results.QUESTIONS)


def test_the_page_is_written_between_its_markers(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    page.update(path, [row(value=1_234_567.0)], {})
    text = path.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "1,234,567" in text


def test_a_page_without_markers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("nothing here\n")
    with pytest.raises(ValueError, match="markers are missing"):
        page.update(path, [], {})


def test_the_kept_results_have_the_agreed_shape() -> None:
    rows, runs = results.load(KEPT)
    results.check_rows(rows)
    assert {r["question"] for r in rows} == set(runs)
    own = [r for r in rows if r["question"] == "throughput" and r["system"] == "dejaq"]
    peers = {r["ratio_to"] for r in own if r["case"] != "ack_one_by_one"}  # which has no peer
    assert peers == {"redis", "beanstalkd"}


def test_the_page_says_what_the_kept_results_say() -> None:
    rows, runs = results.load(KEPT)
    kept = page.generated_part(ROOT / "docs" / "benchmarks.md")
    assert kept == page.render(rows, runs), "stale: run `make bench` or `python -m bench --page`"


def test_kept_files_are_plain_json_lists_and_objects() -> None:
    if (KEPT / "latest.json").exists():
        assert isinstance(json.loads((KEPT / "latest.json").read_text()), list)
        assert isinstance(json.loads((KEPT / "runs.json").read_text()), dict)
