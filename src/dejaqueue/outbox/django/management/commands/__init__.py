"""The commands of `manage.py`, each a module of its name.

Room: outbox.django.management.commands.
See: dejaq_relay.py.
"""
