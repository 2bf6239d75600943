"""Programs of AWS's SDKs for JavaScript and Java at a broker with API keys.

Each goes through queues, batches with an entry that is refused, attributes, visibility, delays,
FIFO queues and dead letters, and compares MD5s as its SDK does. They are javascript/program.cjs and
java/Program.java. Not covered: Python's SDK (test_boto3.py).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FETCHED = ROOT / "build" / "sdks"
PROGRAMS = {
    "javascript": ["node", str(HERE / "javascript/program.cjs")],
    "java": [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-Xmx256m",
        "-Dfile.encoding=UTF-8",
        "-cp",
        f"{FETCHED}/java/*",
        str(HERE / "java/Program.java"),
    ],
}
PARTS = ["queues", "batches", "visibility", "delay", "fifo", "redrive"]


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_program_of_the_sdk_runs(language: str, guarded: tuple[str, dict[str, str]]) -> None:
    if not (FETCHED / language).exists():
        pytest.skip(f"the SDK is not here: scripts/install_sdks.sh {language}")
    url, key = guarded
    kept = {name: v for name, v in os.environ.items() if not name.startswith(("DEJAQ_", "AWS_"))}
    ended = subprocess.run(
        PROGRAMS[language],
        env=kept
        | {name.upper(): text for name, text in key.items()}
        | {"AWS_ENDPOINT_URL_SQS": f"{url}/sqs", "AWS_REGION": "eu-west-1"}
        | {"NODE_PATH": str(FETCHED / "javascript/node_modules")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines() == PARTS
