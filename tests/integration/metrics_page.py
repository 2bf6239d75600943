"""A /metrics page, read as Prometheus reads it."""

from __future__ import annotations

from http.client import HTTPConnection

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.patience import PATIENCE_SECONDS

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

Labels = dict[str, str]


def fetch(port: int, path: str = "/metrics", accept: str = "") -> tuple[int, str, str]:
    """Status, content type and body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path, headers={"Accept": accept} if accept else {})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type") or "", answer.read().decode()
    finally:
        connection.close()


class Page:
    """The samples of a page, by name and labels."""

    def __init__(self, families: list[Metric]) -> None:
        self.families = families
        self.types = {family.name: family.type for family in families}
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in families:
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.samples, f"twice: {sample}"
                self.samples[key] = sample.value

    @staticmethod
    def read(port: int) -> Page:
        """Both formats, which must say the same of what stands still."""
        status, content_type, text = fetch(port)
        assert (status, content_type.split(";")[0]) == (200, "text/plain")
        return Page(list(text_string_to_metric_families(text)))

    @staticmethod
    def read_openmetrics(port: int) -> Page:
        status, content_type, text = fetch(port, accept=OPENMETRICS)
        assert (status, content_type.split(";")[0]) == (200, "application/openmetrics-text")
        return Page(list(openmetrics.text_string_to_metric_families(text)))  # type: ignore[no-untyped-call]

    def all(self, name: str, **labels: str) -> dict[frozenset[tuple[str, str]], float]:
        """The samples of this name that have these labels."""
        wanted = set(labels.items())
        return {
            having: value
            for (known, having), value in self.samples.items()
            if known == name and wanted <= having
        }

    def get(self, name: str, **labels: str) -> float:
        """The one sample of this name and these labels, and of whatever others there are."""
        found = self.all(name, **labels)
        assert len(found) == 1, f"{name} {labels}: {found}"
        return next(iter(found.values()))

    def counters(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Everything that may only grow, parts of histograms included."""
        ends = ("_total", "_bucket", "_count", "_sum")
        return {key: value for key, value in self.samples.items() if key[0].endswith(ends)}
