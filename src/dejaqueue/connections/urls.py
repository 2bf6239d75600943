"""URLs of servers: what holds for those of every kind.

Room: connections.
Holds: a URL whose login is not written as it must be is refused before any part of it is taken for
something else, which then stands in a log or a message: no refusal shows a secret.
See: setting_words.masked for how a URL is shown.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from dejaqueue.errors import BadRequest
from dejaqueue.setting_words import masked

_PLACES = re.compile(r"[^:\[\]]*(:\d*)?|\[[^\]]*\](:\d*)?")


def check_login(field: str, url: str) -> None:
    """Raise BadRequest for a URL with a password that has / ? or # in it as they are."""
    try:
        place = urlsplit(url).netloc
    except ValueError:  # brackets that do not belong together
        raise BadRequest(field, "scheme://user:password@host:port", masked("", url)) from None
    path, _, parameters = url.partition("://")[2][len(place) :].partition("?")
    is_odd = "@" not in place and not all(map(_PLACES.fullmatch, place.split(",")))
    stray = any("@" in part and "=" not in part for part in parameters.split("&"))
    if not place or not ("@" in path or stray or ("@" in parameters and is_odd)):
        return
    limit = "a login with / ? # and @ written as %2F %3F %23 and %40"
    raise BadRequest(field, limit, masked("", url))
