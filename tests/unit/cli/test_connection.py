"""What commands share: where the broker is, what it is shown, which name was meant.

Not covered: TLS and keys at work (tests/cli/test_serve_secured.py).
"""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

import dejaqueue
from dejaqueue.cli import connection
from dejaqueue.cli.connection import RETRY_MS_MAX, connect, url_option


class Client:
    """Notes how it was made."""

    made: dict[str, Any]

    def __init__(self, url: str, **more: Any) -> None:
        type(self).made = {"url": url, **more}
        self.is_connected = False

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def connect(self) -> None:
        self.is_connected = True


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, **environment: str) -> dict[str, Any]:
    """How a command makes its client."""
    monkeypatch.setattr(dejaqueue, "Client", Client)

    @click.command()
    @url_option
    def look(url: str) -> None:
        with connect(url) as client:
            assert getattr(client, "is_connected")  # noqa: B009

    clean = dict.fromkeys(("DEJAQ_URL", "DEJAQ_API_KEY", "DEJAQ_TLS_CA"))
    CliRunner(env=clean | environment).invoke(look, arguments, catch_exceptions=False)
    return Client.made


def test_without_options_it_is_the_usual_broker__without_key_and_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(monkeypatch) == {
        "url": connection.URL_DEFAULT,
        "name": "dejaq",
        "api_key": None,
        "tls": None,
        "retry_ms_max": RETRY_MS_MAX,
    }


def test_key_and_files_are_shown_to_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    made = run(monkeypatch, "--url", "dejaqs://x:1", "--api-key", "k", "--tls-ca", "ca.pem")
    assert (made["url"], made["api_key"]) == ("dejaqs://x:1", "k")
    assert made["tls"] == dejaqueue.Tls(ca="ca.pem")


def test_the_environment_says_the_same__an_option_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    made = run(monkeypatch, "--api-key", "mine", DEJAQ_URL="dejaq://y:2", DEJAQ_API_KEY="k")
    assert (made["url"], made["api_key"]) == ("dejaq://y:2", "mine")
