"""`manage.py dejaq_relay`: sends what is in the outbox, until it is told to stop.

Room: outbox.django.management.commands.
Holds: SIGTERM and Ctrl-C end it after the batch that it is at.
See: ../../../relay.py; docs/guides/outbox.md.
"""

from __future__ import annotations

import signal
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import DEFAULT_DB_ALIAS

from dejaqueue.client import Client
from dejaqueue.outbox.django.outbox import DjangoOutbox
from dejaqueue.outbox.relay import BATCH_ROWS, Relay


class Command(BaseCommand):
    """The command; its broker is the setting DEJAQ, the arguments of `dejaqueue.Client`."""

    help = "Sends what is committed to the outbox to a broker of DejaQ (the setting DEJAQ)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Its options."""
        parser.add_argument(
            "--database", default=DEFAULT_DB_ALIAS, help="Which of DATABASES has the outbox."
        )
        parser.add_argument(
            "--batch-rows",
            type=int,
            default=BATCH_ROWS,
            help="Messages that are sent together at most (%(default)s).",
        )
        parser.add_argument(
            "--once", action="store_true", help="Send what waits now, and end; fails if that does."
        )

    def handle(self, *_: object, **options: Any) -> None:
        """Run it."""
        with Client(**getattr(settings, "DEJAQ", {})) as client:
            outbox = DjangoOutbox(options["database"])
            relay = Relay(client, outbox, batch_rows=options["batch_rows"])
            if options["once"]:
                try:
                    self.stdout.write(f"sent: {relay.send()}")
                finally:
                    relay.release()
                return
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: relay.stop())
            relay.run()
