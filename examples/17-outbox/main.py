"""An order and the mail about it are one transaction of SQLite; a relay sends the mail once."""

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

import dejaqueue
from dejaqueue.outbox import Relay
from dejaqueue.outbox.sqlalchemy import SqlAlchemyOutbox

engine = create_engine("sqlite:///shop.db", poolclass=NullPool)
outbox = SqlAlchemyOutbox(engine)
outbox.create()
with engine.begin() as connection:
    connection.execute(text("CREATE TABLE orders (item TEXT)"))


def order(item: str, price: int) -> None:
    """Keep an order, and have its mail sent; both or neither."""
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO orders VALUES (:item)"), {"item": item})
        outbox.send(connection, "mails", f"your {item}")
        if price < 0:
            raise ValueError("a price below nothing")


with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("mails")
    order("tea", 3)
    try:
        order("cake", -1)
    except ValueError as error:
        print("cake:", error)
    print("sent:", Relay(queue, outbox).send())
    print("once more:", Relay(queue, outbox).send())
    print([payload.decode() for payload in queue.peek("mails")["payload"].to_pylist()])
