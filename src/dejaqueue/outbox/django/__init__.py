"""An outbox in a database that a program reaches by Django; an app for INSTALLED_APPS.

    from dejaqueue.outbox.django import DjangoOutbox

    outbox = DjangoOutbox()

    with transaction.atomic():
        order = Order.objects.create(item="tea")
        outbox.send("mails", json={"order": order.pk})   # counts if the transaction does

    python manage.py migrate            # makes the tables
    python manage.py dejaq_relay        # sends, in a process of its own

Room: outbox.django. Needs `dejaqueue[django]`, and PostgreSQL or SQLite.
Holds: the tables are those of ../tables.py, so that any relay can send what is in them.
See: outbox.py; management/commands/dejaq_relay.py; docs/guides/outbox.md.
"""

from dejaqueue.outbox.django.outbox import DjangoOutbox

__all__ = ["DjangoOutbox"]
