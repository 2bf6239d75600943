"""Names of objects as paths in a bucket, which is a directory as well.

A name of the port is any text of A-Z a-z 0-9 . _ - = and /; one name may be the beginning of
another, parts of it may be empty, and longer than a directory's entry may be. A path keeps a name
readable and differs from it where it has to: its last part ends in `!`, so that it is no
directory's; an empty part is `!!`; a part that is too long is cut, each piece but the last with a
`+` behind it.

    topics/t/00003/begun        topics/t/00003/begun!
    a//b/                       a/!!/b/!

Room: journal.
Holds: name_of(path_of(name)) == name; two names have two paths, of which none is in the other.
"""

from __future__ import annotations

from typing import Final

PART_CHARACTERS: Final = 240
_LAST: Final = "!"
_EMPTY: Final = "!!"
_GOES_ON: Final = "+"


def path_of(name: str) -> str:
    """The path of a name.

    >>> path_of("topics/t/begun"), path_of("a//b/")
    ('topics/t/begun!', 'a/!!/b/!')
    """
    *above, last = name.split("/")
    pieces: list[str] = []
    for part in above:
        pieces += _pieces(part) or [_EMPTY]
    *long, end = _pieces(last) or [""]
    return "/".join([*pieces, *long, end + _LAST])


def _pieces(part: str) -> list[str]:
    cut = [part[start : start + PART_CHARACTERS] for start in range(0, len(part), PART_CHARACTERS)]
    return [*(piece + _GOES_ON for piece in cut[:-1]), *cut[-1:]]


def name_of(path: str) -> str:
    """The name of a path that `path_of` gave."""
    *above, last = path.split("/")
    name = ""
    for part in above:
        if part.endswith(_GOES_ON):
            name += part.removesuffix(_GOES_ON)
        else:
            name += ("" if part == _EMPTY else part) + "/"
    return name + last.removesuffix(_LAST)


def folder_of(prefix: str) -> str:
    """The innermost folder in which every path lies whose name begins so: "" or with a slash."""
    folder = prefix.rpartition("/")[0]
    return path_of(f"{folder}/").removesuffix(_LAST) if "/" in prefix else ""
