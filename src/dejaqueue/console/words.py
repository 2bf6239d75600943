"""Words: numbers, lengths of time and instants as the pages show them.

Room: console. Pure functions.
Holds: an instant is shown in UTC with its zone, and again in the viewer's own by the page's script;
beside it stands how far it is from now.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (
    (86_400_000 * 365, "y"),
    (86_400_000, "d"),
    (3_600_000, "h"),
    (60_000, "min"),
    (1_000, "s"),
)


def count(number: float) -> str:
    """A whole number with commas.

    >>> count(1_234_567)
    '1,234,567'
    """
    return f"{int(number):,}"


def rate(per_second: float) -> str:
    """Messages a second.

    >>> rate(0), rate(0.25), rate(12_345.6)
    ('0', '0.25', '12,346')
    """
    if 0 < per_second < 10:
        return f"{per_second:.2f}".rstrip("0").rstrip(".")
    return f"{per_second:,.0f}"


def size(byte_count: float) -> str:
    """Bytes.

    >>> size(512), size(1536), size(3 << 30)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(byte_count) < 1_024:
            return f"{byte_count:.0f} B" if unit == "B" else f"{byte_count:.1f} {unit}"
        byte_count /= 1_024
    return f"{byte_count:.1f} TiB"


def length(length_ms: int) -> str:
    """A length of time: its two largest units.

    >>> length(0), length(250), length(90_000), length(90_061_000), length(3_600_000)
    ('0 ms', '250 ms', '1 min 30 s', '1 d 1 h', '1 h')
    """
    length_ms = abs(int(length_ms))
    if length_ms < 1_000:
        return f"{length_ms} ms"
    if length_ms < 10_000:
        return f"{length_ms / 1_000:.1f}".removesuffix(".0") + " s"
    parts: list[str] = []
    for index, (unit_ms, name) in enumerate(_UNITS):
        number, rest_ms = divmod(length_ms, unit_ms)
        if not number:
            continue
        parts.append(f"{number} {name}")
        if index + 1 < len(_UNITS) and (more := rest_ms // _UNITS[index + 1][0]):
            parts.append(f"{more} {_UNITS[index + 1][1]}")
        break
    return " ".join(parts)


def late(late_us: int) -> str:
    """How late deliveries are: at most the upper end of a bucket; - = there were none.

    >>> late(-1), late(500), late(2_000), late(5_000_000)
    ('-', '≤ 500 µs', '≤ 2 ms', '≤ 5 s')
    """
    if late_us < 0:
        return "-"
    return f"≤ {late_us} µs" if late_us < 1_000 else f"≤ {length(late_us // 1_000)}"


def relative(instant_ms: int, now_ms: int) -> str:
    """How far an instant is from now.

    >>> relative(5_000, 0), relative(0, 60_000), relative(0, 0)
    ('in 5 s', '1 min ago', 'now')
    """
    if abs(instant_ms - now_ms) < 1:
        return "now"
    far = length(instant_ms - now_ms)
    return f"in {far}" if instant_ms > now_ms else f"{far} ago"


def absolute(instant_ms: int) -> str:
    """An instant in UTC.

    >>> absolute(1_896_082_200_250)
    '2030-01-31 09:30:00.250 UTC'
    """
    try:
        at = _EPOCH + timedelta(milliseconds=instant_ms)
    except OverflowError:
        return f"{instant_ms} ms"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1_000:03d} UTC"


def iso(instant_ms: int) -> str:
    """An instant as ISO 8601 in UTC, to the millisecond.

    >>> iso(1_896_082_200_250)
    '2030-01-31T09:30:00.250Z'
    """
    try:
        at = _EPOCH + timedelta(milliseconds=instant_ms)
    except OverflowError:
        return ""
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1_000:03d}Z"


def sparkline(values: list[float], *, wide: int = 100, high: int = 24) -> str:
    """The points of an SVG line through these values, the oldest first.

    >>> sparkline([0, 1, 0])
    '0.0,23.0 50.0,1.0 100.0,23.0'
    """
    if len(values) < 2:
        return ""
    most = max(values) or 1.0
    step = wide / (len(values) - 1)
    return " ".join(
        f"{index * step:.1f},{high - 1 - (high - 2) * value / most:.1f}"
        for index, value in enumerate(values)
    )
