"""Celery's own transport for SQS at a broker with API keys: only its environment is another one."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.patience import PATIENCE_SECONDS
from tests.sqs.conftest import key_of


def test_celery_runs_its_tasks(guarded: tuple[str, dict[str, str]]) -> None:
    url, root = guarded
    key = key_of(url, "celery", "manage:celery", "produce:celery", "consume:celery", by=root)
    kept = {name: v for name, v in os.environ.items() if not name.startswith(("DEJAQ_", "AWS_"))}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.sqs.celery_program"],
        env=kept
        | {name.upper(): text for name, text in key.items()}
        | {"AWS_ENDPOINT_URL_SQS": f"{url}/sqs", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "[3, 7]\n"
