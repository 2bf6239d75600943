"""`python -m tests.corruption --flips N`: what `make reliability` runs."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from dev.reaper import start_reaper
from tests.corruption.images import rich_image, sealed_image
from tests.corruption.records import record_image
from tests.corruption.rot import FileImage, Image, Rot, spread_flips


def encrypted_image() -> FileImage:
    """Everything, encrypted."""
    return FileImage(rich_image(is_encrypted=True), is_encrypted=True)


def main() -> int:
    """Flip bits; 1 if one went wrong."""
    start_reaper()
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("dejaqueue").setLevel(logging.CRITICAL)
    wrong = 0
    images: list[tuple[Image, int, str]] = [
        (FileImage(rich_image()), options.flips // 2, ""),
        (encrypted_image(), options.flips // 5, ""),
        (record_image(), options.flips // 4, ""),
        (FileImage(sealed_image(), 16 << 20), options.flips // 20, "sealed run"),
    ]
    for image, count, only in images:
        began = time.monotonic()
        rot = Rot(image)
        for path, at, bit in spread_flips(image, count, options.seed, only=only):
            rot.flip(path, at, bit)
        print(rot.tally.text())
        print(f"{count:,} flips in {time.monotonic() - began:.0f} s, {len(rot.tally.wrong)} wrong")
        wrong += len(rot.tally.wrong)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
