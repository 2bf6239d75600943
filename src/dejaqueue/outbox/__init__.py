"""A transactional outbox: messages that are written with a program's own rows, and then sent once.

    from dejaqueue.outbox.sqlalchemy import SqlAlchemyOutbox

    outbox = SqlAlchemyOutbox(engine)
    with engine.begin() as connection:
        connection.execute(orders.insert().values(...))
        outbox.send(connection, "mails", json={"order": 4})   # counts if the transaction does

    Relay(client, outbox).run()                                # in a process of its own

Room: outbox. Built on the client; loads SQLAlchemy and Django where one of them is used, and never
the broker.
Holds: a row that was committed becomes a message once, whatever is killed when; a row that was
rolled back never was.
See: relay.py for how; tables.py for what is kept; docs/guides/outbox.md.
"""

from dejaqueue.outbox.relay import Relay

__all__ = ["Relay"]
