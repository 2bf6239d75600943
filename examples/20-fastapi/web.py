"""Reminders by FastAPI: planned, looked at, moved and taken back while they wait."""

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from tasks import remind

from dejaqueue import RowStatus

api = FastAPI()


class Reminder(BaseModel):
    """What is to be said to whom, and when."""

    who: str
    what: str
    seconds: float = Field(0, ge=0)


@api.post("/reminders", status_code=202)
async def plan(reminder: Reminder) -> dict[str, str]:
    """It is durable before this answers."""
    handle = await remind.in_(reminder.seconds).send_async(reminder.who, reminder.what)
    return {"id": str(handle.id)}


@api.get("/reminders/{number}")
def look(number: int) -> dict[str, str | None]:
    """Where it is, and what came of it. A plain function: it runs on a thread, and may wait."""
    handle = remind.handle(number)
    state = handle.state()
    return {"state": state, "said": handle.result() if state == "done" else None}


@api.put("/reminders/{number}")
def move(number: int, seconds: float) -> dict[str, str]:
    """Give it another time."""
    return _settled(remind.handle(number).move(in_=seconds))


@api.delete("/reminders/{number}")
def cancel(number: int) -> dict[str, str]:
    """Take it back, if it was not said yet."""
    return _settled(remind.handle(number).cancel())


def _settled(status: RowStatus) -> dict[str, str]:
    if status != RowStatus.OK:
        raise HTTPException(404 if status == RowStatus.NOT_FOUND else 409, status.name)
    return {"status": "OK"}
