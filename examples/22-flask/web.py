"""Reports by Flask: asked for in one request, and fetched in another one."""

from flask import Flask, request, url_for
from flask.typing import ResponseReturnValue
from tasks import count

from dejaqueue.tasks import ResultMissing, ResultPending, TaskFailed

app = Flask(__name__)


@app.post("/reports")
def ask() -> ResponseReturnValue:
    """The report is a task; the answer says where it will be."""
    handle = count.send(request.get_data(as_text=True))
    place = url_for("fetch", number=handle.id)
    return {"report": place}, 202, {"Location": place}


@app.get("/reports/<int:number>")
def fetch(number: int) -> ResponseReturnValue:
    """The report, if it comes within the time that a request may take."""
    try:
        return {"words": count.handle(number).result(timeout=10)}
    except ResultPending:
        return {"state": "it is being made"}, 202
    except TaskFailed as failed:
        return {"error": str(failed)}, 422
    except ResultMissing:
        return {"error": "no such report"}, 404
