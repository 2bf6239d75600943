"""The tasks: run by `dejaq worker tasks:app`, sent by web.py."""

import os

from dejaqueue.tasks import Reject, Tasks

app = Tasks(os.environ.get("DEJAQ_URL", "dejaq://localhost:7464"), name="reports")


@app.task(timeout=60, result=3_600)
def count(text: str) -> dict[str, int]:
    """A report that takes longer than a request may: how often each word is there."""
    words = text.split()
    if not words:
        raise Reject("there is nothing to count")
    return {word: words.count(word) for word in sorted(set(words))}
