"""Covers: pages that are put together, and a process that does not answer.

Not covered: processes that run (tests/crash/test_processes_kill.py).
"""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from dejaqueue.http.process_pages import merged, pages_of

ONE = b"""# HELP a_total what a is
# TYPE a_total counter
a_total{topic="x y{z}"} 1
# HELP b what b is
# TYPE b gauge
b 2
"""
TWO = b"""# HELP b what b is
# TYPE b gauge
b 3
# HELP c only here
# TYPE c gauge
c{le="1"} 4
"""


def test_a_family_stands_once__and_each_sample_says_whose_it_is() -> None:
    page = merged({"process-1": ONE, "process-2": TWO}).decode()
    assert page.count("# TYPE b gauge") == 1
    found = {
        (sample.name, sample.labels["process"]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert found == {
        ("a_total", "process-1"): 1,
        ("b", "process-1"): 2,
        ("b", "process-2"): 3,
        ("c", "process-2"): 4,
    }
    assert 'a_total{process="process-1",topic="x y{z}"} 1' in page


def test_the_end_of_open_metrics_stands_once_and_last() -> None:
    page = merged({"p": b"# TYPE b gauge\nb 1\n# EOF\n", "q": b"# TYPE b gauge\nb 2\n# EOF\n"})
    assert page == b'# TYPE b gauge\nb{process="p"} 1\nb{process="q"} 2\n# EOF\n'


def test_who_does_not_answer_is_left_out() -> None:
    assert pages_of({"process-2": "http://127.0.0.1:1"}, {}, None) == {}
    assert pages_of({}, {}, None) == {}
