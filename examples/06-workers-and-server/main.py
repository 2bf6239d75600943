"""Two workers at one topic, of a server if DEJAQ_URL names one, else of a broker right here."""

import os
from threading import Thread

import dejaqueue

url = os.environ.get("DEJAQ_URL")
client = dejaqueue.Client(url) if url else dejaqueue.open("./example-queue")
done: list[str] = []


def work(name: str, share: int) -> None:
    """Take batches, do what they ask, ack each batch with one call."""
    with client.consume_batches("letters", batch_rows=5, prefetch=5, max_messages=share) as batches:
        for batch in batches:
            done.extend(f"{message.payload.decode()} by {name}" for message in batch.messages())
            batch.ack()


with client:
    client.create_topic("letters")
    with client.producer("letters") as producer:
        futures = [producer.send(f"letter {n}", delay=0.05 + n / 200) for n in range(20)]
    assert len({future.result() for future in futures}) == 20

    workers = [Thread(target=work, args=(name, 10)) for name in ("Ada", "Ben")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    print(len(done), "letters,", len({line.split(" by ")[0] for line in done}), "different")
    print(client.stats("letters").scheduled, "left")
    client.delete_topic("letters")
