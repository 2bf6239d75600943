"""The tasks, and what Django wants around each: connections that are gone are not used again."""

from django.conf import settings
from django.db import close_old_connections

from dejaqueue.tasks import Attempt, Middleware, Tasks
from shop.models import Order


class Connections(Middleware):
    """As Django does around each request."""

    def before(self, attempt: Attempt) -> None:
        close_old_connections()

    def after(self, attempt: Attempt, result: object) -> None:
        close_old_connections()

    def error(self, attempt: Attempt, error: BaseException) -> None:
        close_old_connections()


app = Tasks(settings.DEJAQ["url"], name="shop", middleware=[Connections()])


@app.task(retries=5, backoff=10)
def pack(order: int) -> None:
    """Run at least once, so it says what is to be, and not what to add."""
    Order.objects.filter(pk=order).update(state="packed")
