"""Covers: a chain in a bucket: what follows a backup, what is missing or exchanged, what goes.

Not covered: the bytes of a piece (test_log_pieces.py).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.log_chain import LogChain, chain_names, chain_of, following, is_reached
from dejaqueue.backup.log_pieces import LogPiece, digest_of
from dejaqueue.backup.manifest import Manifest, Piece
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.segments.log_turn import LogSlice

NOTHING = memoryview(b"")


def manifest_of(
    chain: str = "c", backup: str = "b", logs: dict[str, int] | None = None
) -> Manifest:
    catalogue = Piece("0" * 64, 0)
    return Manifest(backup, "s", "", 50, 50, "1", catalogue, chain=chain, logs=logs or {})


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.open(str(tmp_path), make=True)


def filled(archive: Archive, count: int = 40, name: str = "c") -> LogChain:
    """Pieces that each have ten entries of the log `1`; every second one says an instant."""
    chain, previous = LogChain(archive.bucket, name), ""
    for number in range(1, count + 1):
        one = LogSlice("1", 10 * (number - 1), 10 * number, NOTHING)
        at_ms = 0 if number % 2 else 100 + number
        piece = LogPiece(name, number, previous, "s", at_ms, (one,), {"1": one.last})
        stored = piece.encode()
        assert chain.put_new(number, stored)
        assert chain.put_new(number, stored), "an answer was lost"
        previous = digest_of(stored)
    return chain


def damage_of(chain: LogChain, manifest: Manifest) -> tuple[list[int], list[str]]:
    damage: list[str] = []
    numbers = [piece.number for piece in following(chain, manifest, damage.append)]
    return numbers, damage


def test_pieces_follow_each_other_and_the_backup(archive: Archive) -> None:
    chain = filled(archive)
    assert chain.numbers() == range(1, 41)
    assert not chain.put_new(3, b"another")
    assert damage_of(chain, manifest_of(logs={"1": 0})) == (list(range(1, 41)), [])
    assert chain.last_instant(range(1, 40)) == 138
    assert (archive.reach_ms(manifest_of(logs={"1": 0})), archive.reach_ms(manifest_of(""))) == (
        140,
        50,
    )
    assert chain_of(archive.bucket, manifest_of("")) is None
    assert chain_names(archive.bucket) == {"c"}
    empty = LogChain(archive.bucket, "none")
    assert (len(empty.numbers()), empty.last_instant(empty.numbers())) == (0, 0)
    assert archive.chain_damage(manifest_of("none")) == ([], 0)


def test_what_the_backup_has_may_be_given_up__in_any_order(archive: Archive) -> None:
    chain = filled(archive)
    chain.delete(range(3, 9))  # the store deletes 1 and 2 later
    reached = manifest_of(logs={"1": 85})
    assert damage_of(chain, reached) == (list(range(9, 41)), [])
    assert is_reached(chain, reached)
    old = manifest_of(logs={"1": 20})
    assert not is_reached(chain, old)
    assert damage_of(chain, old) == (
        [],
        [f"{chain.path(9)}: entries of log 1 are missing behind 20"],
    )
    assert archive.reach_ms(old) == 50


def test_what_is_missing_or_exchanged_is_named(archive: Archive) -> None:
    chain, manifest = filled(archive), manifest_of(logs={"1": 0})
    fifth, seventh = chain.stored(5), chain.stored(7)
    assert fifth is not None
    archive.bucket.put(chain.path(7), fifth)
    assert damage_of(chain, manifest) == (
        [1, 2, 3, 4, 5, 6],
        [f"{chain.path(7)}: another one is in its place"],
    )
    archive.bucket.put(chain.path(7), b"rotten")
    assert "is not what was stored" in damage_of(chain, manifest)[1][0]
    assert seventh is not None
    exchanged = LogPiece.decode("x", seventh)
    later = LogPiece("c", 7, "00", "s", 1, exchanged.slices, exchanged.reached)
    archive.bucket.put(chain.path(7), later.encode())
    with pytest.raises(JournalDamaged, match="does not follow the one before"):
        list(following(chain, manifest))
    archive.bucket.delete([chain.path(7)])
    assert "are missing behind 0" in damage_of(chain, manifest)[1][0]


def test_a_chain_goes_with_its_backup(archive: Archive) -> None:
    kept, gone, named = (filled(archive, 4, name) for name in ("kept", "gone", "named"))
    named.delete(range(1, 3))
    for backup, chain, reached in (("1", "kept", 0), ("2", "named", 0), ("3", "kept", 20)):
        archive.put_manifest(manifest_of(chain, backup, {"1": reached}))
    archive.sweep(0)
    assert chain_names(archive.bucket) == {"kept"}
    assert (len(kept.numbers()), len(gone.numbers())) == (4, 0)
    archive.forget(["1", "3"])
    archive.sweep(0)
    assert chain_names(archive.bucket) == set()


def test_a_missing_beginning_is_named__also_if_its_logs_got_nothing_since(
    archive: Archive,
) -> None:
    chain, previous = LogChain(archive.bucket, "c"), ""
    for number, log in ((1, "2"), (2, "3"), (3, "1"), (4, "1")):
        one = LogSlice(log, 10 * number, 10 * number + 10, NOTHING)
        piece = LogPiece("c", number, previous, "s", number, (one,), {log: one.last})
        assert chain.put_new(number, piece.encode())
        previous = digest_of(piece.encode())
    logs = {"1": 30, "2": 10}
    plain = manifest_of(logs=logs)
    whole = [plain, replace(plain, chain_from=1), replace(plain, chain_from=2)]
    for manifest in whole:
        assert damage_of(chain, manifest) == ([1, 2, 3, 4], [])
    chain.delete(range(1, 2))
    assert damage_of(chain, whole[1]) == ([], [f"{chain.path(1)} is missing"])
    assert archive.chain_damage(whole[1]) == ([f"{chain.path(1)} is missing"], 0)
    assert not is_reached(chain, whole[1])
    assert damage_of(chain, whole[2]) == ([2, 3, 4], []), "the backup has what was in it"
    chain.delete(range(2, 3))
    assert damage_of(chain, whole[2]) == ([], [f"{chain.path(2)} is missing"]), "log 3 is new"
    assert damage_of(chain, replace(whole[0], chain_from=3)) == ([3, 4], [])
    chain.delete(range(3, 5))
    for first, text in ((1, []), (2, []), (3, [f"{chain.path(3)} is missing"])):
        assert damage_of(chain, replace(whole[0], chain_from=first)) == ([], text)
