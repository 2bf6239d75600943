"""A broker with API keys: a shop that may only send, a worker that may only take."""

import json
import subprocess
import sys

import dejaqueue

serve = [sys.executable, "-m", "dejaqueue", "serve", "--data", "memory:", "--port", "0", "--json"]
broker = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
assert broker.stdout is not None
url = json.loads(broker.stdout.readline())["url"]

try:
    # The first key needs none, but must be made on the broker's own machine.
    with dejaqueue.Client(url) as anybody:
        root_key = anybody.create_key("root", ["admin:*"])["api_key"]

    with dejaqueue.Client(url, api_key=root_key) as root:
        root.create_topic("orders.eu")
        shop_key = root.create_key("shop", ["produce:orders.*"])["api_key"]
        worker_key = root.create_key("worker", ["consume:orders.*"])["api_key"]

        with (
            dejaqueue.Client(url, api_key=shop_key) as shop,
            dejaqueue.Client(url, api_key=worker_key) as worker,
        ):
            shop.send("orders.eu", b"two chairs")
            for message in worker.consume("orders.eu", max_messages=1):
                print(message.payload.decode())
                message.ack()

            for refused in (lambda: shop.peek("orders.eu"), lambda: worker.send("orders.eu", b"x")):
                try:
                    refused()
                except dejaqueue.DejaQError as error:
                    print(f"{type(error).__name__}: {error}")

            root.revoke_key("shop")
            try:
                shop.send("orders.eu", b"one table")
            except dejaqueue.DejaQError as error:
                print(f"{type(error).__name__}: {error}")

        print([key["name"] for key in root.api_keys()])
finally:
    broker.terminate()
    broker.wait()
    broker.stdout.close()
