"""Stored rows and parcels of them, for tests of dead letters."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dejaqueue.broker.letters.parcel import Parcel
from dejaqueue.engine.arrays import Words
from dejaqueue.journal.interface import TEXT_COLUMNS
from dejaqueue.model import Topic


class Rows:
    """Stored rows by locator; None as payload = the row is gone."""

    def __init__(self, payloads: list[bytes | None], **texts: list[str]) -> None:
        self._payloads, self._texts = payloads, texts
        self.reads: list[int] = []

    def read(self, locators: np.ndarray, columns: tuple[str, ...]) -> pa.RecordBatch:
        places = locators.tolist()
        self.reads.append(len(places))
        arrays = []
        for name in columns:
            if name == "payload":
                arrays.append(pa.array([self._payloads[p] for p in places], pa.binary()))
            else:
                texts = self._texts.get(name, [""] * len(self._payloads))
                arrays.append(pa.array([texts[p] or None for p in places], pa.utf8()))
        return pa.RecordBatch.from_arrays(arrays, list(TEXT_COLUMNS))


def parcel(rows: int, destination: str = "", max_payload_bytes: int = 1 << 20) -> Parcel:
    places = np.arange(rows, dtype=np.int64)
    return Parcel(
        Topic("t", max_payload_bytes=max_payload_bytes),
        2,
        destination,
        places + 5,
        np.ones(rows, dtype=np.uint16),
        places,
        None,
        None,
        Words(("why",), np.zeros(rows, dtype=np.int32)),
        np.full(rows, 99),
    )
