"""What `manage.py` can do with an outbox.

Room: outbox.django.management.
See: commands/dejaq_relay.py.
"""
