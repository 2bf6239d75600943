"""The dashboard and the alerts ask for what a broker shows: every metric, label and state exists.

Covered: the catalogue is shown whole by a broker that has done everything; names, labels and values
in every PromQL expression of deploy/. Not covered: whether the thresholds are wise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dejaqueue.client import Client
from dejaqueue.errors import ResourceExhausted
from dejaqueue.http.catalogue import METRICS
from dejaqueue.tasks.worker.metrics_page import METRICS as WORKER_METRICS
from tests.crash.broker_process import BrokerProcess
from tests.integration.metrics_page import Page, fetch
from tests.integration.test_metrics import work

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "dejaq.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"

# What Prometheus adds itself.
ADDED_METRICS = {"up"}
ADDED_LABELS = {"job", "instance"}
# Shown where journals are on JetStream: tests/cluster/test_join_leave.py looks at them.
OF_SERVERS = {name for name in METRICS if METRICS[name].labels[:1] == ("server",)}
OF_SERVERS.add("dejaq_journal_disk_free_bytes")
# Shown by a standby: tests/crash/test_standby_kill.py.
OF_SERVERS |= {name for name in METRICS if name.startswith("dejaq_standby_")}
# Shown by a broker that archives: likewise.
OF_SERVERS |= {name for name in METRICS if name.startswith("dejaq_archive_")}
# Shown by workers, as tests/unit/tasks/worker/test_metrics_page.py has it.
OF_WORKERS: dict[str, dict[str, set[str]]] = {
    f"dejaq_worker_{metric.name}{end}": {label: set() for label in (*metric.labels, *more)}
    for metric in WORKER_METRICS
    for end, more in ((("_bucket", ["le"]),) if metric.type == "histogram" else (("", []),))
}
SELECTOR = re.compile(r"(?<![\w$])([a-z][a-z_0-9]*)\s*(\{[^}]*\})?(?=[\s\[{),+*/>=<-]|$)")
MATCHER = re.compile(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
WORDS = {"sum", "min", "max", "rate", "increase", "deriv", "abs", "changes", "by", "on", "and"}
WORDS |= {"or", "unless", "ignoring", "histogram_quantile", "label_values", "without", "bool"}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Of a broker that has done everything there is to show."""
    path = tmp_path_factory.mktemp("broker")
    broker = BrokerProcess(path / "queue", path / "log", journal__snapshot_entries=20)
    broker.start()
    with Client(broker.url) as client:
        work(client)
        client.create_topic("small", max_backlog_count=1)
        client.send("small", b"1", key="a")
        client.backup(str(path / "backups"))
        client.create_topic("keyed")
        client.create_subscription("keyed", "audit")
        client.send("keyed", b"1", key="a")
        with pytest.raises(ResourceExhausted):
            client.send("small", b"2")
        with client.consume("work.dead", idle_ms=20_000) as consumer:
            next(consumer).ack()
            fetch(broker.http_port, "/livez")
            fetch(broker.http_port, "/metrics")
            shown = Page.read(broker.http_port)
            for _ in range(200):  # a snapshot is written behind, a ping comes within a second
                if not (set(METRICS) - OF_SERVERS - families(shown)):
                    break
                client.send("keyed", b"x")
                shown = Page.read(broker.http_port)
    yield shown
    broker.stop()


def families(page: Page) -> set[str]:
    return {name.removesuffix("_total") for name in page.types}


def labels_of(page: Page) -> dict[str, dict[str, set[str]]]:
    """Of each sample's name its labels, and their values."""
    found: dict[str, dict[str, set[str]]] = {}
    for name, labels in page.samples:
        known = found.setdefault(name, {})
        for label, value in labels:
            known.setdefault(label, set()).add(value)
    return found


def expressions() -> list[Any]:
    dashboard = json.loads(DASHBOARD.read_text())
    found = [
        (f"panel {panel['title']}", target["expr"], target["legendFormat"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]
    found += [
        (f"variable {one['name']}", one["definition"], "")
        for one in dashboard["templating"]["list"]
        if one["type"] == "query"
    ]
    found += [("annotation", one["expr"], "") for one in dashboard["annotations"]["list"]]
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            texts = " ".join(rule["annotations"].values())
            found.append((f"alert {rule['alert']}", rule["expr"], texts))
    return [pytest.param(*one, id=f"{number} {one[0]}") for number, one in enumerate(found)]


def selectors(expression: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """(metric, its matchers) of an expression."""
    bare = GROUPING.sub(" ", expression)
    found = []
    for name, braces in SELECTOR.findall(re.sub(r"\[[^]]*\]", "", bare)):
        if name not in WORDS and not name.isdigit():
            found.append((name, MATCHER.findall(braces)))
    return found


def test_everything_in_the_catalogue_is_shown(page: Page) -> None:
    nobody_was_refused = {"dejaq_quota_refusals"}
    assert set(METRICS) - families(page) == OF_SERVERS | nobody_was_refused


@pytest.mark.parametrize(("where", "expression", "texts"), expressions())
def test_expression_asks_for_what_there_is(
    page: Page, where: str, expression: str, texts: str
) -> None:
    known = labels_of(page)
    known |= {name: {label: set() for label in METRICS[name].labels} for name in OF_SERVERS}
    known |= OF_WORKERS
    assert expression.count("(") == expression.count(")")
    found = selectors(expression)
    if where.startswith("variable"):
        name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", expression).groups()  # type: ignore[union-attr]
        assert label in known[name] or label in ADDED_LABELS
        return
    assert found, expression
    labels: set[str] = set(ADDED_LABELS)
    for name, matchers in found:
        assert name in known or name in ADDED_METRICS, name
        labels |= set(known.get(name, ()))
        for label, operator, value in matchers:
            if label in ADDED_LABELS:
                continue
            assert label in known[name], f"{name} has no label {label}"
            if operator == "=":
                assert value in known[name][label], f'{name}: no {label}="{value}"'
    for grouped in GROUPING.findall(expression):
        names = {name.strip() for name in grouped.split(",")}
        assert names <= labels, f"{names - labels} in {expression}"
    asked = set(re.findall(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}", texts))
    assert asked <= labels, f"{asked - labels} in {texts}"


def test_guide_asks_for_what_there_is(page: Page) -> None:
    guide = (DEPLOY.parent / "docs" / "guides" / "monitoring.md").read_text()
    known = labels_of(page)
    named = set(re.findall(r"\b(dejaq_[a-z_]+)\b", guide))
    assert len(named) >= 7
    unknown = {name for name in named if name not in known and name not in METRICS}
    assert unknown == set()
    for within in re.findall(r'within="(\w+)"', guide):
        assert within in known["dejaq_due_within"]["within"]


def test_panels_have_places_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_alerts_have_names_severities_and_advice() -> None:
    rules = [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 15
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description"}


def test_expression_that_asks_for_something_else_is_noticed(page: Page) -> None:
    [(name, matchers)] = selectors('sum by (topic) (rate(dejaq_nothing_total{color="red"}[5m]))')
    assert (name, matchers) == ("dejaq_nothing_total", [("color", "=", "red")])
    assert name not in labels_of(page)
