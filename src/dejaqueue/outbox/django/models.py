"""The two tables of an outbox, as models: for migrations, and to look at.

Room: outbox.django. Nothing is written by them: DjangoOutbox and the relay have their own SQL.
Holds: names and types are those of `SCHEMA` in ../tables.py.
See: ../tables.py; tests/unit/outbox/django/test_models.py.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class OutboxRow(models.Model):
    """A message that was committed and is not sent yet; or that the broker refused."""

    id = models.BigAutoField(primary_key=True)
    topic = models.TextField()
    payload = models.BinaryField()
    fields = models.TextField()  # the other ones of the message, as JSON
    batch = models.BigIntegerField(null=True)
    refused = models.TextField(null=True)  # why the broker did not take it

    class Meta:
        """The names of ../tables.py."""

        db_table = "dejaq_outbox"
        indexes: ClassVar = [models.Index(fields=["topic", "batch"], name="dejaq_outbox_batch")]

    def __str__(self) -> str:
        return f"message {self.id} for {self.topic}"


class RelayRow(models.Model):
    """Which relay is at work, and the number of its last batch; one row."""

    id = models.IntegerField(primary_key=True)
    identity = models.TextField()
    owner = models.TextField()
    until_ms = models.BigIntegerField()
    batch = models.BigIntegerField()

    class Meta:
        """The name of ../tables.py."""

        db_table = "dejaq_outbox_relay"

    def __str__(self) -> str:
        return f"relay {self.owner}, batch {self.batch}"
