import django
from django.conf import settings
settings.configure(INSTALLED_APPS=["dejaqueue.outbox.django"], DATABASES={"default":{"ENGINE":"django.db.backends.sqlite3","NAME":":memory:"}})
django.setup()
from django.core.management import call_command
call_command("makemigrations","dejaq_outbox",name="tables")
call_command("sqlmigrate","dejaq_outbox","0001")
