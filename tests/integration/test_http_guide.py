"""Every command of the HTTP guide works as it stands, one after the other."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.patience import PATIENCE_SECONDS

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "http.md"
ADDRESS = "http://localhost:7465"


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_commands_of_the_guide_work(tmp_path: Path) -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.S | re.M)
    assert len(blocks) > 5
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    try:
        script = "\n".join(blocks).replace(ADDRESS, f"http://127.0.0.1:{server.port}")
        found = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    finally:
        broker.stop()
        server.stop()
    assert found.returncode == 0, found.stdout + found.stderr
    answers = found.stdout
    assert '"status":"LEASE_LOST"' in answers
    assert '"tag":"bulk","count":1000' in answers
    repeated = re.findall(r'\{"id":"(\d+)","status":"OK"\}\{"id":"(\d+)"', answers)
    assert any(first == second for first, second in repeated), answers
