"""The tasks: run by `dejaq worker tasks:app`, sent by web.py."""

import os

from dejaqueue.tasks import Tasks

app = Tasks(os.environ.get("DEJAQ_URL", "dejaq://localhost:7464"), name="reminders")


@app.task(retries=3, backoff=10, result=3_600)
async def remind(who: str, what: str) -> str:
    """Tell somebody; here it is only said."""
    return f"{who}, {what}!"
