"""Covers: `manage.py dejaq_relay --once`, and the broker that its setting names.

Not here: the command in a process of its own, which is killed and stopped
(tests/integration/test_outbox.py, tests/docs/test_applications.py).
"""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import transaction
from django.test import override_settings

from dejaqueue.broker.broker import Broker
from dejaqueue.client import Client
from dejaqueue.errors import TopicUnknown
from dejaqueue.flight.server import FlightServer
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.unit.outbox.django.scene import SQLITE, database


def test_what_waits_is_sent_to_the_broker_of_the_settings(tmp_path: Path) -> None:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = FlightServer(broker)
    server.start()
    url = f"dejaq://127.0.0.1:{server.port}"
    try:
        with (
            database(ENGINE=SQLITE, NAME=tmp_path / "shop.db") as outbox,
            override_settings(DEJAQ={"url": url}),
            Client(url) as client,
        ):
            with transaction.atomic():
                outbox.send("mails", "tea")
                outbox.send("mails", "cake")
            with pytest.raises(TopicUnknown):
                call_command("dejaq_relay", once=True)
            client.create_topic("mails")
            shown = StringIO()
            call_command("dejaq_relay", once=True, stdout=shown)
            assert shown.getvalue() == "sent: 2\n"
            assert client.stats("mails").scheduled == 2
    finally:
        server.stop()
        broker.stop()
