"""What happens in a disaster, all of it drawn from one number.

Not drawn: what the machine does meanwhile.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.disasters.store_proxy import Moment, Trouble

KINDS = ("directory", "divided", "sqlite", "bucket")
"""Of journals."""
_KIND_WEIGHTS = (50, 5, 22, 23)
ARCHIVES = ("directory", "s3")
STRIKES = ("kill", "at a request", "stop")
STRIKES_BESIDE_A_STANDBY = (*STRIKES, "pause", "none")
WAYS = (
    "again",
    "restore",
    "instant",
    "beside",
    "standby",
    "older copy",
    "rot",
)
"""Back: the same journals again; a restore of all there is, or to a millisecond, or beside what is
there; a standby's promotion; an older copy of the journals, and then a restore; journals of which a
bit is another one, and then a restore."""
_WAY_WEIGHTS = (12, 26, 14, 10, 22, 8, 8)
DAMAGES = ("none", "none", "none", "flipped", "short", "missing")
"""Of a file of the archive."""
LONG_AWAY_SECONDS = 75.0
LONG_AWAY_EACH = 250
"""One of so many has a store that is away for longer than a minute."""
AGAIN_SHARE = 0.3
"""So often a second disaster follows the first."""


@dataclass(frozen=True)
class Round:
    """One disaster, and the way back.

    Attributes:
        load_seconds: of each part of the load.
        trouble, trouble_ends: of the way to the archive; it may last until the strike.
        trouble_seconds: how long it lasts at least.
        restarts: the broker is killed and started again before.
        backs_up: a backup is taken under load: "", "more" or "full".
        settles: the strike waits until all that was acknowledged a moment ago is archived.
        strike: what ends the broker.
        strike_after, moment: at which request to the archive, where it is one.
        way, target: back; into which kind of journals.
        damage: of one file of the archive before the way back.
        skips: what is damaged is left out once, before it is mended.
        kills: restores, or a promotion, are killed: behind so many ms, or requests.
        part: a number from 0 to 1, for instants and files.
    """

    load_seconds: float
    trouble: Trouble
    trouble_ends: bool
    trouble_seconds: float
    restarts: bool
    backs_up: str
    settles: bool
    strike: str
    strike_after: int
    moment: Moment
    way: str
    target: str
    damage: str
    skips: bool
    kills: tuple[int, ...]
    part: float


@dataclass(frozen=True)
class Plan:
    """All of it.

    Attributes:
        kind: of journals.
        archive: where the archive is.
        interval_ms, backup_interval_ms: of the archive, and of backups.
        deletes: topics are made, filled and deleted under load.
        tries_wrong_key: before each start and restore.
    """

    seed: int
    kind: str
    archive: str
    is_encrypted: bool
    interval_ms: int
    backup_interval_ms: int
    deletes: bool
    tries_wrong_key: bool
    rounds: tuple[Round, ...] = field(default=())

    @classmethod
    def drawn(cls, seed: int) -> Plan:
        """The plan of a number."""
        draw = random.Random(seed)
        kind = draw.choices(KINDS, _KIND_WEIGHTS)[0]
        archive = draw.choice(ARCHIVES)
        is_encrypted = draw.random() < 0.35
        rounds = [_drawn(draw, kind, archive, is_long=seed % LONG_AWAY_EACH == 0)]
        if draw.random() < AGAIN_SHARE:
            rounds.append(_drawn(draw, rounds[0].target, archive))
        return cls(
            seed,
            kind,
            archive,
            is_encrypted,
            draw.choice((5, 20, 50)),
            draw.choice((86_400_000, 86_400_000, 1_500)),
            draw.random() < 0.35,
            is_encrypted and draw.random() < 0.5,
            tuple(rounds),
        )


def _drawn(draw: random.Random, kind: str, archive: str, *, is_long: bool = False) -> Round:
    way = draw.choices(WAYS, _WAY_WEIGHTS)[0]
    if is_long and way == "standby":
        way = "restore"
    strikes = STRIKES_BESIDE_A_STANDBY if way == "standby" else STRIKES
    in_s3 = archive == "s3"
    troubles = tuple(Trouble) if in_s3 else (Trouble.NONE, Trouble.AWAY)
    trouble = draw.choice(troubles) if draw.random() < 0.6 else Trouble.NONE
    if is_long:
        trouble = Trouble.AWAY
    target = draw.choices(KINDS, _KIND_WEIGHTS)[0]
    # Into the journals there are, or by a standby, which has a directory.
    target = {"again": kind, "beside": kind, "standby": "directory"}.get(way, target)
    kills = draw.choice((0, 0, 0, 1, 2))
    return Round(
        load_seconds=draw.uniform(0.05, 0.25),
        trouble=trouble,
        trouble_ends=is_long or draw.random() < 0.6,
        trouble_seconds=LONG_AWAY_SECONDS if is_long else draw.uniform(0.1, 0.5),
        restarts=draw.random() < 0.25,
        backs_up=draw.choice(("", "", "", "more", "full")),
        settles=draw.random() < 0.6,
        strike=draw.choice(strikes if in_s3 else tuple(s for s in strikes if s != "at a request")),
        strike_after=draw.randrange(6),
        moment=draw.choice(tuple(Moment)),
        way=way,
        target=target,
        damage="none" if way in ("again", "standby") else draw.choice(DAMAGES),
        skips=draw.random() < 0.5,
        kills=tuple(
            draw.randrange(1, 40) if in_s3 else draw.randrange(5, 350) for _ in range(kills)
        ),
        part=draw.random(),
    )
