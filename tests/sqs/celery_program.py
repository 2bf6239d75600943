"""A program with Celery's own `sqs://`: sends tasks, and runs the worker that does them.

Its environment names the endpoint and the key, as any program of AWS's SDKs would have it.
"""

from __future__ import annotations

from celery import Celery
from celery.contrib.testing.worker import start_worker

from tests.patience import until

app = Celery("program", broker="sqs://")
app.conf.update(
    broker_transport_options={"region": "eu-west-1", "is_secure": False, "wait_time_seconds": 1},
    broker_connection_retry_on_startup=True,
    task_default_queue="celery",
    worker_hijack_root_logger=False,
)
done: list[int] = []


@app.task(name="add")  # type: ignore[untyped-decorator]
def add(a: int, b: int) -> None:
    done.append(a + b)


def main() -> None:
    """Two tasks, one of which is for later."""
    add.delay(1, 2)
    add.apply_async((3, 4), countdown=1)
    with start_worker(app, perform_ping_check=False, pool="solo", loglevel="warning"):
        until(lambda: len(done) == 2, "both tasks are done")
    print(sorted(done))


if __name__ == "__main__":
    main()
