"""The page of metrics of several processes: theirs put together, each sample with its process.

Room: http.
Holds: a family stands once, with the samples of all; who does not answer in time is left out, so
its `dejaq_ready_state` is missing; a process that is asked for its own page asks nobody.
See: routes/metrics.py; docs/guides/processes.md.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from dejaqueue.http.forwarding import FORWARDED

ANSWER_SECONDS = 3.0
AT_ONCE_MAX = 16
END = "# EOF"


def merged(pages: Mapping[str, bytes]) -> bytes:
    """Pages by process as one page, in either format of Prometheus."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    is_ended = False
    for name, page in pages.items():
        family = ""
        for line in page.decode().splitlines():
            if line == END:
                is_ended = True
            elif line.startswith("# "):
                family = line.split(" ", 3)[2]
                known = heads.setdefault(family, [])
                if line not in known:
                    known.append(line)
            elif line:
                samples.setdefault(family, []).append(_of_process(line, name))
    parts = [line for family in heads for line in (*heads[family], *samples.get(family, ()))]
    return "\n".join([*parts, *([END] if is_ended else []), ""]).encode()


def _of_process(line: str, name: str) -> str:
    """A sample with one more label, the first."""
    at = len(line.split("{", 1)[0].split(" ", 1)[0])
    if line[at] == "{":
        return f'{line[: at + 1]}process="{name}",{line[at + 1 :]}'
    return f'{line[:at]}{{process="{name}"}}{line[at:]}'


def pages_of(
    urls: Mapping[str, str], headers: Mapping[str, str], tls: ssl.SSLContext | None
) -> dict[str, bytes]:
    """The pages of other processes, by name; without those that do not answer.

    Args:
        urls: of their own HTTP ports, by name.
        headers: of the request: who asks, and for which format.
        tls: for those at https.
    """
    if not urls:
        return {}
    asked = {**headers, FORWARDED.decode(): "1"}
    with ThreadPoolExecutor(min(len(urls), AT_ONCE_MAX), "dejaq-gather") as threads:
        found = threads.map(lambda url: _page_of(url, asked, tls), urls.values())
        return {name: page for name, page in zip(urls, found, strict=True) if page is not None}


def _page_of(url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None) -> bytes | None:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    if parts.scheme == "https":
        connection = HTTPSConnection(host, port, timeout=ANSWER_SECONDS, context=tls)
    try:
        connection.request("GET", "/metrics", headers=dict(headers))
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
    return content if answer.status == 200 else None
