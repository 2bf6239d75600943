"""What Django is told of the app.

Room: outbox.django.
Holds: the label is that of the tables' names, and no other app of a project is likely to have it.
"""

from __future__ import annotations

from django.apps import AppConfig


class OutboxApp(AppConfig):
    """`dejaqueue.outbox.django` in INSTALLED_APPS."""

    name = "dejaqueue.outbox.django"
    label = "dejaq_outbox"
    verbose_name = "Outbox of DejaQ"
    default_auto_field = "django.db.models.BigAutoField"
