"""Covers: what a load takes, how amounts are read, and that no rate is better than the measured."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dejaqueue.cli import plan as module
from dejaqueue.cli.plan import PriceTable, cores_for, number, plan, plan_load

RESULTS = Path(__file__).parents[3] / "bench" / "results" / "latest.json"


def measured(question: str, case: str) -> float:
    rows = json.loads(RESULTS.read_text())
    (value,) = (
        float(row["value"])
        for row in rows
        if (row["question"], row["case"], row["system"]) == (question, case, "dejaq")
    )
    return value


def test_no_figure_is_better_than_the_one_that_was_measured() -> None:
    questions = {"batches": "throughput", "singles": "throughput", "http": "http"}
    for way, rates in module.RATES.items():
        for case, rate in rates.items():
            assert rate <= measured(questions[way], case), (way, case)
    assert 1_000_000 / measured("hot_instant", "drained") >= module.PEAK_RATE
    assert measured("scale", "memory_per_message") + 19 <= module.MESSAGE_BYTES


def test_amounts_are_read_as_people_write_them() -> None:
    for text, value in {"40M": 40e6, "5k": 5e3, "1.5G": 1.5e9, "4Ki": 4096, "7": 7}.items():
        assert number(text) == value
    for wrong in ("", "many", "-1", "5T"):
        with pytest.raises(click.BadParameter):
            number(wrong)


def test_a_load_of_forty_million() -> None:
    found = plan_load(40e6, 5e3, payload_bytes=200, has_keys=True)
    assert (found.brokers, found.partitions, found.cores) == (1, 1, 1)
    assert found.memory_bytes == (160 << 20) + 40_000_000 * 85 + 5_000 * 60 * 200
    assert found.disk_bytes == 40_000_000 * 300 * 2 + (64 << 20)
    assert found.journal_bytes_day == 5_000 * 86_400 * 300
    assert found.peak_seconds == 0
    assert found.cost_day is None


def test_cores_follow_the_way_in() -> None:
    assert cores_for(200_000, "batches") == 2
    assert cores_for(20_000, "singles") == 4
    assert cores_for(2_000, "http") == 2
    assert plan_load(1, 400_000).partitions == module.WORKERS


def test_three_copies_cost_three_times_as_much() -> None:
    prices = PriceTable(core_hour=1.0, memory_hour=0.0, disk_month=0.0)
    assert plan_load(1, 1, prices=prices).cost_day == 24.0
    assert plan_load(1, 1, prices=prices, copies=3).cost_day == 72.0


def test_the_command_says_it_in_words_and_as_json() -> None:
    words = ["--messages", "40M", "--per-second", "5K", "--peak", "1M", "--disk-month", "0.1"]
    told = CliRunner().invoke(plan, words)
    assert told.exit_code == 0, told.output
    assert "memory         2.7 GiB (124.0 MiB file cache)" in told.output
    assert "peak done in   2.141 s" in told.output
    assert "cost of a day  0.05" in told.output
    assert "More cores" not in told.output
    much = CliRunner().invoke(plan, ["--messages", "1", "--per-second", "40K", "--way", "http"])
    assert "More cores than the 2 of the measurement" in much.output
    as_json = CliRunner().invoke(plan, [*words, "--json", "--copies", "3"])
    assert json.loads(as_json.output)["brokers"] == 3
