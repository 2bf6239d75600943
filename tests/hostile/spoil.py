"""Spoilt batches: what each stream may carry, serialised, and then changed somewhere.

A number gives a batch: the same one gives the same bytes. Half of the changes know the format (an
offset, a place in a dictionary, a count of nulls, where a buffer lies); the others are bits.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from dejaqueue.schema.messages import DELIVERY, SCAN
from tests.hostile.arrow_bytes import BATCH, SCHEMA, Message, messages_of

Change = Callable[[random.Random, list[Message]], None]

BOMB_ROWS = 2_000
BOMB_EACH = 400
"""One batch of so many is a bomb: it is the size that is wrong with it, and nothing else."""
INTERESTING = (
    0, 1, -1, 2, 7, 8, 9, 15, 16, 64, 127, 128, 255, 256, 4_095, 4_096, 65_535, 65_536, 300_000,
    1 << 20, 1 << 24, (1 << 31) - 1, -(1 << 31), 1 << 31, 1 << 32, 1 << 40,
    (1 << 63) - 1, -(1 << 63),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spoilt:
    """What arrives.

    Attributes:
        op: of the stream; "http" = an enqueue as a body; "read" = what a client reads.
        is_bomb: well-formed, and too large once it is unpacked.
    """

    op: str
    messages: list[Message]
    is_bomb: bool = False


def spoilt(seed: int) -> Spoilt:
    """The batch of a number."""
    draw = random.Random(seed)
    if seed % BOMB_EACH == BOMB_EACH - 1:
        op, messages = bombs()[seed // BOMB_EACH % len(bombs())]
        return Spoilt(op, _copied(messages), is_bomb=True)
    op, messages = draw.choice(good())
    messages = _copied(messages)
    # After a bit of a head was turned, nothing in it can be found any more.
    changes = [draw.choice(CHANGES) for _ in range(draw.choice((1, 1, 1, 2, 3)))]
    for change in sorted(changes, key=lambda one: one is _bit_of_the_head):
        change(draw, messages)
    return Spoilt(op, messages)


def _copied(messages: list[Message]) -> list[Message]:
    return [Message(bytearray(one.metadata), bytearray(one.body)) for one in messages]


# --- what is good -------------------------------------------------------------------------------


@cache
def good() -> list[tuple[str, list[Message]]]:
    """Batches of each stream, in each layout that is accepted."""
    payloads = pa.array([b"one", b"", b"three" * 9, b"\xff\x00"])
    texts = pa.array(["red", "green", "", "blaugr\u00fcn"])
    names = pa.array(["red", None, "red", "green"])
    lists = pa.array([["a", "bc"], None, [], ["def"]])
    maps = pa.array(
        [[("n", "v"), ("m", "w")], [], None, [("k", "u")]], pa.map_(pa.utf8(), pa.utf8())
    )
    whole = pa.array([5, 6, 7, 8])
    dues = pa.array(np.arange(4) + 1_700_000_000_000)
    instants = dues.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    some = pa.array([1_800_000_000_000, None, 1_900_000_000_000, None])
    views = pa.array([b"one" * 9, b"", b"three", b""], pa.binary_view())
    encoded = pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 3, 4], pa.int32()), pa.array(["a", "b", "a", "b"]).dictionary_encode()
    )
    sends: list[dict[str, pa.Array]] = [
        {"payload": payloads},
        {
            "payload": payloads,
            "due": dues,
            "key": names,
            "group": texts,
            "priority": whole.cast(pa.uint16()),
            "tags": lists,
            "headers": maps,
            "expires": some,
        },
        {
            "payload": payloads.cast(pa.large_binary()),
            "key": texts.cast(pa.large_utf8()),
            "tags": lists.cast(pa.large_list(pa.utf8())),
        },
        {"payload": payloads, "partition": pa.array([0, 1, 0, 1], pa.int32())},
        {
            "payload": payloads.dictionary_encode(),
            "key": names.dictionary_encode(),
            "group": texts.dictionary_encode(),
            "tags": encoded,
        },
        {"payload": views, "group": pa.array(["word" * 9, "b", "", "c"], pa.string_view())},
        {
            "payload": payloads,
            "due": instants,
            "expires": some,
        },
        {"payload": pa.array([b"x" * 90] * 70), "tags": pa.array([["t", "u"]] * 70)},
    ]
    ids = pa.array([1, 2, 3, 1 << 40])
    others = [
        ("move", {"id": ids, "due": dues, "priority": whole.cast(pa.uint16())}),
        ("move", {"key": texts, "group": names, "due": dues}),
        ("move", {"key": texts.dictionary_encode(), "group": names.dictionary_encode()}),
        ("move", {"id": ids, "by_ms": pa.array([0, -5, 60_000, 1 << 50]), "if_due": dues}),
        ("move", {"key": texts, "by_ms": whole.dictionary_encode(), "if_due": some}),
        ("cancel", {"id": ids}),
        ("cancel", {"id": ids, "if_due": some}),
        ("cancel", {"key": texts, "if_due": instants}),
        ("cancel", {"key": texts}),
        *(
            (op, {"id": ids, "attempts": whole.cast(pa.uint16())})
            for op in ("ack", "nack", "extend")
        ),
        ("ack", {"id": ids.dictionary_encode(), "attempts": whole.dictionary_encode()}),
    ]
    found = [("enqueue", messages_of(pa.record_batch(columns))) for columns in sends]
    found += [("http", messages_of(pa.record_batch(columns))) for columns in sends]
    found += [
        (op, messages_of(pa.record_batch(sends[1]), compression=codec))
        for op in ("enqueue", "http")
        for codec in ("zstd", "lz4")
    ]
    found.append(("http", messages_of(*[pa.record_batch(sends[4])] * 2)))
    found += [(op, messages_of(pa.record_batch(columns))) for op, columns in others]
    read = sends[1] | {"id": ids, "attempts": whole.cast(pa.uint16()), "state": texts}
    read |= {"partition": pa.array([0] * 4, pa.int32())}
    for schema in (DELIVERY, SCAN):
        batch = pa.record_batch([read[name] for name in schema.names], schema=schema)
        found += [("read", messages_of(batch))] * 2
    return found


@cache
def bombs() -> list[tuple[str, list[Message]]]:
    """What takes gigabytes if it is unpacked before somebody counts."""
    text = "x" * (1 << 20)
    places = pa.array(np.zeros(BOMB_ROWS, np.int32))
    offsets = pa.array(np.arange(BOMB_ROWS + 1, dtype=np.int32))
    encoded = pa.DictionaryArray.from_arrays(places, pa.array([text]))
    payloads = pa.DictionaryArray.from_arrays(places, pa.array([text.encode()]))
    short = pa.array([b"p"] * BOMB_ROWS)
    columns: list[dict[str, pa.Array]] = [
        {"payload": payloads},
        {"payload": short, "key": encoded},
        {"payload": short, "tags": pa.ListArray.from_arrays(offsets, encoded)},
        {"payload": short, "headers": pa.MapArray.from_arrays(offsets, encoded, encoded)},
    ]
    found = [
        (op, messages_of(pa.record_batch(each))) for op in ("enqueue", "http") for each in columns
    ]
    zeros = pa.record_batch({"payload": pa.array([bytes(30 << 20)], pa.large_binary())})
    found.append(("http", messages_of(*[zeros] * 10, compression="zstd")))
    return found


# --- what is changed ----------------------------------------------------------------------------


def _of_a_batch(draw: random.Random, messages: list[Message]) -> Message:
    """A message that has buffers."""
    return draw.choice([one for one in messages if one.kind != SCHEMA] or messages)


def _bit_of_the_body(draw: random.Random, messages: list[Message]) -> None:
    message = _of_a_batch(draw, messages)
    if message.body:
        message.body[draw.randrange(len(message.body))] ^= 1 << draw.randrange(8)


def _byte_of_the_body(draw: random.Random, messages: list[Message]) -> None:
    message = _of_a_batch(draw, messages)
    if message.body:
        message.body[draw.randrange(len(message.body))] = draw.choice((0, 255, 128, 192, 30, 31, 1))


def _bit_of_the_head(draw: random.Random, messages: list[Message]) -> None:
    message = draw.choice(messages)
    message.metadata[draw.randrange(len(message.metadata))] ^= 1 << draw.randrange(8)


def _a_number_of_the_body(draw: random.Random, messages: list[Message]) -> None:
    """An offset, a place, an id, a view: whatever begins at a multiple of its width."""
    message = _of_a_batch(draw, messages)
    width, form = draw.choice(((4, "<i"), (4, "<i"), (8, "<q")))
    extents = [message.extent(at) for at in message.buffers()]
    end = len(message.body)
    inside = [(at, size) for at, size in extents if 0 <= at <= at + size <= end and size >= width]
    if not inside:
        return
    at, size = draw.choice(inside)
    place = at + width * draw.randrange(size // width)
    value = draw.choice((draw.choice(INTERESTING), draw.randrange(-20, 20_000)))
    if draw.random() < 0.3:
        value += struct.unpack_from(form, message.body, place)[0]
    bits = 8 * width
    value = (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    struct.pack_into(form, message.body, place, value)


def _two_numbers_swapped(draw: random.Random, messages: list[Message]) -> None:
    body = _of_a_batch(draw, messages).body
    if len(body) >= 8:
        one, other = (4 * draw.randrange(len(body) // 4) for _ in range(2))
        body[one : one + 4], body[other : other + 4] = body[other : other + 4], body[one : one + 4]


def _an_extent(draw: random.Random, places: list[int], message: Message) -> None:
    if places:
        at = draw.choice(places) + 8 * draw.randrange(2)
        (value,) = struct.unpack_from("<q", message.metadata, at)
        value = draw.choice((draw.choice(INTERESTING), value + draw.randrange(-9, 9), value * 2))
        value = max(-(1 << 63), min(value, (1 << 63) - 1))
        struct.pack_into("<q", message.metadata, at, value)


def _where_a_buffer_lies(draw: random.Random, messages: list[Message]) -> None:
    message = _of_a_batch(draw, messages)
    _an_extent(draw, message.buffers(), message)


def _a_count_of_rows_or_nulls(draw: random.Random, messages: list[Message]) -> None:
    message = _of_a_batch(draw, messages)
    _an_extent(draw, message.nodes(), message)


def _two_buffers_swapped(draw: random.Random, messages: list[Message]) -> None:
    message = _of_a_batch(draw, messages)
    places = message.buffers()
    if len(places) > 1:
        one, other = draw.sample(places, 2)
        kept = message.extent(one)
        struct.pack_into("<qq", message.metadata, one, *message.extent(other))
        struct.pack_into("<qq", message.metadata, other, *kept)


def _the_body_cut(draw: random.Random, messages: list[Message]) -> None:
    message = _of_a_batch(draw, messages)
    if message.body:
        del message.body[8 * draw.randrange(max(len(message.body) // 8, 1)) :]


def _a_message_twice_or_never(draw: random.Random, messages: list[Message]) -> None:
    place = draw.randrange(len(messages))
    if draw.random() < 0.5 and len(messages) > 1:
        del messages[place]
    else:
        messages.insert(place, messages[place])


CHANGES: tuple[Change, ...] = (
    *[_a_number_of_the_body] * 8,
    *[_where_a_buffer_lies] * 3,
    *[_a_count_of_rows_or_nulls] * 3,
    _bit_of_the_body,
    _byte_of_the_body,
    _byte_of_the_body,
    _bit_of_the_head,
    _two_numbers_swapped,
    _two_buffers_swapped,
    _the_body_cut,
    _a_message_twice_or_never,
)
__all__ = ["BATCH", "Spoilt", "bombs", "good", "spoilt"]
