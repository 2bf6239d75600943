"""`python -m tests.corruption --flips N`: what `make reliability` runs."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.corruption.images import SEGMENT_BYTES, rich_image, sealed_image
from tests.corruption.rot import Rot, spread_flips


def main() -> int:
    """Flip bits; 1 if one went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("dejaqueue").setLevel(logging.CRITICAL)
    wrong = 0
    images = [
        (rich_image(), SEGMENT_BYTES, options.flips * 19 // 20, ""),
        (sealed_image(), 16 << 20, options.flips // 20, "sealed run"),
    ]
    for image, segment_bytes, count, only in images:
        began = time.monotonic()
        rot = Rot(image, segment_bytes)
        for path, at, bit in spread_flips(image, count, options.seed, only=only):
            rot.flip(path, at, bit)
        print(rot.tally.text())
        print(f"{count:,} flips in {time.monotonic() - began:.0f} s, {len(rot.tally.wrong)} wrong")
        wrong += len(rot.tally.wrong)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
