"""docs/benchmarks.md: the part between its markers is made of the kept results.

Room: bench. Rows and runs in, Markdown out.
Holds: the page says nothing that the two JSON files do not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.results import QUESTIONS
from bench.targets import WORK, Target, verdicts

BEGIN = "<!-- figures: made by `make bench`, do not edit below -->"
END = "<!-- end of figures -->"
TITLES = {
    "throughput": "Throughput",
    "kinds": "Keys, priorities, groups",
    "sizes": "Payloads of 16 KiB to 1 MiB",
    "lateness": "Lateness",
    "pollers": "Lateness beside clients that wait over HTTP",
    "hot_instant": "Hot instant",
    "spike": "More in a second than a partition serves in it",
    "beside": "Beside a topic that has much to do at once",
    "fair": "Fair topics",
    "subscriptions": "Subscriptions",
    "http": "HTTP",
    "doq": "DOQ's gRPC streams",
    "scale": "Scale",
    "topics": "Topics that nobody uses",
    "spark": "Spark",
    "spark_lateness": "Lateness of Spark's streaming read",
    "journals": "Journals on servers",
    "bytes": "Bytes at rest",
    "cluster": "Three brokers",
    "many": "Many consumers, partitions and topics",
    "processes": "Processes that divide a directory",
    "workers": "Workers",
    "peers": "One message a call, beside other queues",
    "sqs": "The API of Amazon SQS",
    "console": "The console",
    "scaling": "What consumers are scaled by, simulated",
    "starting": "Starting",
    "parts": "Parts",
}


def render(rows: list[dict[str, Any]], runs: dict[str, Any]) -> str:
    """The generated part of the page."""
    parts = [_targets(rows)]
    parts += [_question(name, rows, runs[name]) for name in QUESTIONS if name in runs]
    return "\n\n".join(parts) + "\n"


def update(page: Path, rows: list[dict[str, Any]], runs: dict[str, Any]) -> None:
    """Write the generated part into the page, between its markers."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{page}: the markers are missing: {BEGIN} … {END}")
    page.write_text(f"{before}{BEGIN}\n\n{render(rows, runs)}\n{END}{after}", encoding="utf-8")


def generated_part(page: Path) -> str:
    """What stands between the markers of the page."""
    return page.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip() + "\n"


def number(value: float) -> str:
    """A figure for readers: three to four digits that count, thousands apart.

    >>> number(1234567.8), number(0.4567), number(0)
    ('1,234,568', '0.457', '0')
    """
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def _targets(rows: list[dict[str, Any]]) -> str:
    lines = [
        "## Targets",
        "",
        "| work | target | measured | reached |",
        "| --- | --- | --- | --- |",
    ]
    for target, got, reached in verdicts(rows):
        work = WORK[target.question, target.case]
        shown = _alone(target, rows) if got is None else f"{number(got)} {target.unit}"
        verdict = {None: "–", True: "yes", False: "**no**"}[reached]
        bound = f"{target.sign} {number(target.bound)} {target.unit}"
        lines.append(f"| {work} | {bound} | {shown} | {verdict} |")
    return "\n".join(lines)


def _alone(target: Target, rows: list[dict[str, Any]]) -> str:
    """What is said where there is no ratio: DejaQ's own figure, if the peer alone was missing."""
    place = (target.question, target.case, target.system)
    for row in rows:
        if (row["question"], row["case"], row["system"]) == place:
            peer = target.unit.removeprefix("× ")
            return f"{number(row['value'])} {row['unit']}, {peer} not measured"
    return "not measured"


def _question(name: str, rows: list[dict[str, Any]], run: dict[str, Any]) -> str:
    lines = [
        f"## {TITLES[name]}",
        "",
        "| case | system | value | unit | least – most of the rounds | ratio |",
        "| --- | --- | ---: | --- | ---: | --- |",
    ]
    for row in rows:
        if row["question"] != name:
            continue
        found = run["spreads"].get(f"{row['system']}/{row['case']}")
        spread = f"{number(found['low'])} – {number(found['high'])}" if found else ""
        ratio = f"{number(row['ratio'])} × {row['ratio_to']}" if row["ratio"] is not None else ""
        cells = (row["case"], row["system"], number(row["value"]), row["unit"], spread, ratio)
        lines.append("| " + " | ".join(cells) + " |")
    lines += [""] + [f"Left out: {reason}." for reason in run["left_out"]]
    return "\n".join([*lines, _where(run)]).replace("\n\n\n", "\n\n")


def _where(run: dict[str, Any]) -> str:
    machine = run["machine"]
    versions = [f"{k} {v}" for k, v in machine["versions"].items() if v is not None]
    texts = [
        f"{machine['date']}, commit {machine['commit']}, `{run['command']}`",
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB",
        f"Linux {machine['kernel']}, {machine['file_system']}",
        f"Python {machine['python']}, {', '.join(versions)}",
        f"other programs used {machine['other_work_percent']} % of the cores meanwhile",
    ]
    return "Measured " + "; ".join(texts) + "."
