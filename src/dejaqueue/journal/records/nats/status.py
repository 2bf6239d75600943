"""What is shown of the servers and copies of a JetStream cluster: rows for status and metrics.

Room: journal. Pure.
See: watch.py judges; cli/cluster.py and http/exposition.py show.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from dejaqueue.connections.nats.monitor import Copy, ServerReport, lags_of
from dejaqueue.journal.records.nats.watch import SickCopy


def server_rows(
    reports: Sequence[ServerReport], sick: Sequence[SickCopy], is_ours: Callable[[str], bool]
) -> list[dict[str, Any]]:
    """One row for each server that answers, should have copies, or is sick, by name.

    Returns:
        `server`; `state`, one of `whole`, `sick`, `silent`; `version`; `meta_leader`, True for the
        one that places streams; `leads`, streams; `copies`; `lag`, operations that its copies are
        behind at most, -1 where nobody knows; `bytes`; `why` it is sick.
    """
    told = {report.server: report for report in reports}
    copies = [copy for report in reports for copy in report.copies if is_ours(copy.stream)]
    named = set(told) | {one.server for one in sick}
    for copy in copies:
        named |= {*copy.followers} | ({copy.leader} if copy.leader else set())
    lags = lags_of(copies)
    return [
        _row(name, told.get(name), [one for one in copies if one.server == name], lags, sick)
        for name in sorted(named)
    ]


def _row(
    name: str,
    report: ServerReport | None,
    copies: Sequence[Copy],
    lags: dict[tuple[str, str], int],
    sick: Sequence[SickCopy],
) -> dict[str, Any]:
    why = [str(one) for one in sick if one.server == name]
    is_silent = report is None or report.is_off
    known = [lag for (_, server), lag in lags.items() if server == name]
    return {
        "server": name,
        "state": "silent" if is_silent else "sick" if why else "whole",
        "version": "" if report is None else report.version,
        "meta_leader": report is not None and report.meta_leader == name,
        "leads": sum(copy.leader == name for copy in copies),
        "copies": len(copies),
        "lag": -1 if is_silent else max(known, default=0),
        "bytes": sum(copy.byte_count for copy in copies),
        "why": "; ".join(why),
    }


def copy_rows(reports: Sequence[ServerReport], streams: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each copy of each partition's stream, which may have other partitions, too.

    Returns:
        `partition`; `server`; `role`, `leader` or `follower`; of the stream: `records`; `last`, the
        newest number;
        `lag`, operations that it is behind, -1 where nobody knows.
    """
    copies = [copy for report in reports for copy in report.copies]
    lags = lags_of(copies)
    copies_of = defaultdict[str, list[Copy]](list)
    for copy in copies:
        copies_of[copy.stream].append(copy)
    rows = [
        {
            "partition": partition,
            "server": copy.server,
            "role": "leader" if copy.leader == copy.server else "follower",
            "records": copy.messages,
            "last": copy.last,
            "lag": lags.get((copy.stream, copy.server), -1),
        }
        for partition, stream in enumerate(streams)
        for copy in copies_of[stream]
    ]
    return sorted(rows, key=lambda row: (row["partition"], row["server"]))
