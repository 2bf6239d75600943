"""Values as they may be shown: without passwords, and without secrets in URLs.

Room: vocabulary; of the standard library alone, as the witness of a broker's death loads it when
others wait for what it says (cluster/witness.py).
Holds: what nobody has thought of is masked.
See: configuration.py and connections/urls.py, which show values.
"""

from __future__ import annotations

import re
from typing import Any

MASK = "***"
SECRET_NAME = re.compile(r"(?:^|_)(?:password|secret|token|api_key)(?:_|$)")
LOGIN = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?P<login>.*)@", re.IGNORECASE | re.DOTALL)
"""All up to the last @: a password may have @ / ? # and blanks in it, if somebody forgot to encode
them, and what comes after one of these is no part of the login to whoever reads the URL then."""
PARAMETERS = re.compile(r"(?P<begin>[?#])(?P<parameters>[^?#]*)")
READABLE = frozenset(
    {"application_name", "ca", "certificate", "connect_timeout", "monitor", "prefix", "region",
     "replicas", "sslmode", "sslrootcert", "tls"}
)  # fmt: skip
"""Parameters of URLs that are shown. All others are masked, those that nobody has thought of too:
a `sig` is as good as a password."""
USERS = frozenset({"cassandra", "cockroachdb", "mariadb", "mysql", "postgres", "postgresql"})
"""Schemes where a login without a password is a name; elsewhere it may be a token."""


def masked(name: str, value: Any) -> Any:
    """A value as it may be shown: no password of its own, and no secret inside of a URL.

    >>> masked("journal.url", "s3://me:hid@den@bucket/dejaq?region=eu&sig=hidden")
    's3://me:***@bucket/dejaq?region=eu&sig=***'
    """
    if SECRET_NAME.search(name.rpartition(".")[2]) and value:
        return MASK
    if not isinstance(value, str) or "://" not in value:
        return value
    if login := LOGIN.search(value):
        if "?" in login["login"] or "#" in login["login"]:  # which @ ends it nobody can tell
            return f"{value[: login.end('scheme')]}{MASK}"
        value = LOGIN.sub(_without_password, value)
    return PARAMETERS.sub(_without_values, value)


def _without_password(found: re.Match[str]) -> str:
    user, colon, _ = found["login"].partition(":")
    if any(sign in user for sign in "@/ "):  # what looks like a name is the end of a password
        return f"{found['scheme']}{MASK}@"
    if colon:
        return f"{found['scheme']}{user}:{MASK}@"
    shown = user if found["scheme"].removesuffix("://").lower() in USERS else MASK
    return f"{found['scheme']}{shown}@"


def _without_values(found: re.Match[str]) -> str:
    parts = []
    for part in re.split("([&;])", found["parameters"]):
        name, equals, value = part.partition("=")
        is_shown = part in {"", "&", ";"} or (name in READABLE and equals)
        parts.append(part if is_shown else f"{name}={MASK}" if equals and value else MASK)
    return found["begin"] + "".join(parts)
