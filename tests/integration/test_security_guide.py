"""The commands of docs/guides/security.md make certificates that work, on both ports."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from dejaqueue.access.tls import load_tls
from dejaqueue.client import Client, Tls
from dejaqueue.cluster.secret import read_secret
from dejaqueue.settings import ServerSettings
from tests.integration.access_fixture import running
from tests.patience import PATIENCE_SECONDS

GUIDE = Path(__file__).parents[2] / "docs/guides/security.md"


def run_block_of(heading: str, folder: Path) -> None:
    """Run the first commands below a heading of the guide."""
    below = GUIDE.read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    script = below.split("```sh\n")[1].split("```")[0]
    found = subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert found.returncode == 0, found.stderr


def test_the_secret_of_the_guide_is_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run_block_of("## Keys of a cluster", tmp_path)
    assert len(read_secret(str(tmp_path / "secret"))) == 64
    assert caplog.text == "", "nobody else may read it"


def test_certificates_of_the_guide_work(tmp_path: Path) -> None:
    run_block_of("## TLS", tmp_path)
    ca, shop = str(tmp_path / "ca.pem"), (str(tmp_path / "shop.pem"), str(tmp_path / "shop.key"))
    assert (tmp_path / "shop.key").stat().st_mode & 0o777 == 0o600
    settings = ServerSettings(
        tls_certificate=str(tmp_path / "broker.pem"),
        tls_key=str(tmp_path / "broker.key"),
        tls_client_ca=ca,
    )
    with running(load_tls(settings)) as site:
        for host in ("localhost", "127.0.0.1"):
            tls = Tls(ca, *shop)
            with Client(f"dejaqs://{host}:{site.flight.port}", tls=tls) as client:
                client.connect()
            context = ssl.create_default_context(cafile=ca)
            context.load_cert_chain(*shop)
            url = f"https://{host}:{site.http.port}/livez"
            assert httpx.get(url, verify=context, timeout=PATIENCE_SECONDS).status_code == 200
