"""Sending payloads ahead of their messages, in the asynchronous client.

Room: client. The source of _sync/uploads.py (scripts/generate_sync_client.py): change this one.
Holds: nothing here blocks the loop; a few parts of a payload are held, however large it is.
See: client/streamed.py; payload.py, how such a payload is read.
"""

from __future__ import annotations

from functools import partial

from dejaqueue.client._aio import waiting
from dejaqueue.client.core import ClientCore
from dejaqueue.client.streamed import OnProgress, Source, upload_all
from dejaqueue.topic_names import check_topic_name


class AsyncUploads:
    """Uploads, as the client has them."""

    _core: ClientCore

    async def upload(
        self,
        topic: str,
        source: Source,
        *,
        on_progress: OnProgress | None = None,
        once: bool = False,
    ) -> bytes:
        """Stream a payload to the broker's payload store; what to send as its message's payload.

        `send` does this by itself with a file or an iterator. By itself it is for batches,
        producers and transactions, and for a payload that several messages have. What no message
        is sent with within six hours is deleted.

        Args:
            topic: of the messages; its `max_payload_bytes` is the limit, 5 GiB at most.
            source: a file that was opened in binary mode, or an iterator of bytes. It is read on
                another thread in the asynchronous client.
            on_progress: called with how many bytes more were stored, on that thread.
            once: it is for one message, which then keeps what was stored; else each message has a
                copy. Sent in a second one while the first is there, it is copied for that.

        Returns:
            A voucher; of up to 256 KiB the payload itself.

        Raises:
            Refused: the broker has no payload store. BadRequest: it is too large, or is none.
                TopicUnknown, Unavailable, ResourceExhausted.

        Example:
            >>> async def publish(client):                              # doctest: +SKIP
            ...     with open("holiday.mp4", "rb") as file:
            ...         payload = await client.upload("videos", file)
            ...     await client.send_batch("videos", [{"payload": payload, "group": "family"}])
        """
        check_topic_name(topic)
        report = on_progress or _ignored
        call = partial(upload_all, self._core.part_calls, topic, source, report, once=once)
        return await waiting.run(call)


def _ignored(_byte_count: int) -> None:
    return None
