"""URLs of servers: what holds for those of every kind.

Room: connections.
Holds: a URL whose login is not written as it must be is refused before any part of it is taken for
something else, which then stands in a log or a message: no refusal shows a secret.
See: setting_words.masked for how a URL is shown.
"""

from __future__ import annotations

import logging
import re
from urllib.parse import parse_qs, urlsplit

from dejaqueue.addresses import is_loopback
from dejaqueue.errors import BadRequest
from dejaqueue.setting_secrets import masked

log = logging.getLogger("dejaqueue.connections")

_PLACES = re.compile(r"[^:\[\]]*(:\d*)?|\[[^\]]*\](:\d*)?")
_PORT = re.compile(r":\d+$")
_TLS_FILES = ("ca", "certificate", "key", "ssl_ca", "sslrootcert")
_PASSWORDS = ("password", "system")
"""Parameters that have one: libpq's, and that of NATS for its system account."""
_TLS_WORDS = ("true", "require", "verify-ca", "verify-full")


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


def warn_if_plain(field: str, url: str) -> None:
    """Log a warning if a password goes to another machine as it is.

    Whoever can listen on the way has it then, and with it all messages. Whether a server would take
    TLS without being asked to is not known here, so only what the URL asks for counts.
    """
    parts = urlsplit(url)
    login, _, places = parts.netloc.rpartition("@")
    asked = parse_qs(parts.query)
    has_password = ":" in login or any(name in asked for name in _PASSWORDS)
    if not has_password or parts.scheme.endswith("ss"):  # rediss
        return
    tls = asked.get("tls", asked.get("sslmode", [""]))[-1].lower()
    if any(name in asked for name in _TLS_FILES) or tls in _TLS_WORDS:
        return
    hosts = [
        _PORT.sub("", place) for place in ",".join([places, *asked.get("host", [])]).split(",")
    ]
    far = [host for host in hosts if host and host[0] != "/" and not is_loopback(host)]
    if far:
        log.warning(
            "%s: the password for %s goes over the network in plain text; ask for TLS in the URL",
            field,
            ", ".join(far),
        )
