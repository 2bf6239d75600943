"""Covers: each client's own unit tests, its example, and that its README shows that example.

Not covered: what the clients do with a broker (test_conformance.py).
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from dejaqueue.flight.server import FlightServer
from tests.clients.drivers import ROOT, command_of
from tests.patience import PATIENCE_SECONDS

EXAMPLES = {
    "go": "example/main.go",
    "java": "src/main/java/dejaqueue/Example.java",
}


def run(command: list[str], language: str) -> str:
    found = subprocess.run(
        command,
        cwd=ROOT / "clients" / language,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_the_units_of_a_client_pass(language: str) -> None:
    assert "PASS" in run(command_of(language, "unit"), language)


def test_the_example_of_a_client_runs(language: str, server: FlightServer) -> None:
    said = run([*command_of(language, "example"), server.url], language)
    assert said == "stretch your legs, never early: true\n"


def test_the_readme_of_a_client_shows_its_example(language: str) -> None:
    folder = ROOT / "clients" / language
    (shown,) = re.findall(
        rf"```{language}\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL
    )
    assert shown == (folder / EXAMPLES[language]).read_text()


@pytest.mark.parametrize("name", ["go.mod", "go.sum"])
def test_what_the_go_client_takes_is_pinned(name: str) -> None:
    content = (ROOT / "clients/go" / name).read_text()
    assert "github.com/apache/arrow-go/v18 v18." in content
    assert "replace " not in content


def sources() -> list[Path]:
    return [path for path in (ROOT / "clients").rglob("*") if path.suffix in {".go", ".java"}]


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.name)
def test_no_file_of_a_client_is_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 600


def test_what_the_java_client_takes_is_pinned() -> None:
    lines = (ROOT / "clients/java/dependencies.sha256").read_text().splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64}  [\w.-]+\.jar", line) for line in lines)
    version = re.search(r"<arrow.version>(.*)</", (ROOT / "clients/java/pom.xml").read_text())
    assert version is not None
    assert any(line.endswith(f"flight-core-{version[1]}.jar") for line in lines)
