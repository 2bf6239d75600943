"""How the tables of the outbox came to be what they are.

Room: outbox.django.migrations. Run by `manage.py migrate`; a migration that was released is not
changed.
See: ../models.py.
"""
