"""The first tables of the outbox.

Room: outbox.django.migrations.
See: ../models.py, which a test compares with this.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Makes both tables."""

    initial = True
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("topic", models.TextField()),
                ("payload", models.BinaryField()),
                ("fields", models.TextField()),
                ("batch", models.BigIntegerField(null=True)),
                ("refused", models.TextField(null=True)),
            ],
            options={
                "db_table": "dejaq_outbox",
                "indexes": [models.Index(fields=["topic", "batch"], name="dejaq_outbox_batch")],
            },
        ),
        migrations.CreateModel(
            name="RelayRow",
            fields=[
                ("id", models.IntegerField(primary_key=True, serialize=False)),
                ("identity", models.TextField()),
                ("owner", models.TextField()),
                ("until_ms", models.BigIntegerField()),
                ("batch", models.BigIntegerField()),
            ],
            options={"db_table": "dejaq_outbox_relay"},
        ),
    ]
