"""Debounce: of many changes to one document, one message comes, after the last of them."""

import dejaqueue

QUIET = 0.3  # seconds without a further change

with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("index", on_duplicate="replace")
    for version in range(1, 6):
        # The key is taken by the message before: it goes, and this one comes, in one step.
        queue.send("index", f"report, version {version}", key="doc-7", delay=QUIET)
    queue.send("index", "letter, version 1", key="doc-8", delay=2 * QUIET)
    print("waiting:", queue.peek("index").num_rows)

    for message in queue.consume("index", max_messages=2):
        print("index", message.payload.decode())
        message.ack()

    # Other topics keep the message that is there: whoever asks twice waits for the same one.
    queue.create_topic("thumbnails", on_duplicate="keep")
    first = queue.send("thumbnails", "make it", key="photo-1")
    again = queue.send("thumbnails", "make it, please", key="photo-1")
    print("the same message:", first == again)
