"""The table of tricks: ways to spell a name, an address or a request so that two readers differ.

Kept: whoever finds another way adds it here, and every route, action and stream is tried with it as
every role (test_tricks.py). A gate that reads a name otherwise than what is behind it lets in.
"""

from __future__ import annotations

import unicodedata
from typing import Any


def names(target: str, own: str) -> dict[str, Any]:
    """Spellings of a name in JSON and in descriptors.

    Args:
        target: a topic that the caller has no role for.
        own: one that the caller may have one for; longer names that begin with it, too.
    """
    first, rest = target[0], target[1:]
    return {
        "plain": target,
        "upper case": target.upper(),
        "title case": target.title(),
        "blank before": f" {target}",
        "blank after": f"{target} ",
        "tab after": f"{target}\t",
        "newline after": f"{target}\n",
        "carriage return": f"{target}\r\n",
        "header in it": f"{target}\r\nx-dejaq-forwarded: 1",
        "line of the audit log": f'{target}"\nprincipal="root"',
        "NUL after": f"{target}\0",
        "NUL between": f"{own}\0{target}",
        "NUL before": f"\0{target}",
        "delete character": f"{target}\x7f",
        "slash after": f"{target}/",
        "slash before": f"/{target}",
        "own, slash": f"{own}/{target}",
        "dot segment": f"./{target}",
        "dot segments": f"{own}/../{target}",
        "dots after": f"{target}/.",
        "backslashes": f"{own}\\..\\{target}",
        "dot": ".",
        "dot dot": "..",
        "percent-encoded": f"%{ord(first):02x}{rest}",
        "percent-encoded twice": f"%25{ord(first):02x}{rest}",
        "question mark after": f"{target}?x",
        "fragment": f"{target}#x",
        "semicolon": f"{target};{own}",
        "comma": f"{own},{target}",
        "star": "*",
        "question marks": "?" * len(target),
        "prefix and star": f"{target[:3]}*",
        "set": f"[{first}]{rest}",
        "braces": "{topic}",
        "own and star": f"{own}*",
        "shard": f"{target}=0-2",
        "shard that cannot be": f"{target}=9-2",
        "shard of a shard": f"{target}=0-2=0-2",
        "own with a shard's ending": f"{own}={target}",
        "full width": "".join(chr(ord(letter) + 0xFEE0) for letter in target),
        "cyrillic e": target.replace("e", "\u0435"),
        "combining": unicodedata.normalize("NFD", target.replace("e", "\u00e9")),
        "long s": target.replace("s", "\u017f"),
        "dotless i": target.replace("i", "\u0131"),
        "zero width": f"{first}\u200b{rest}",
        "soft hyphen": f"{first}\u00ad{rest}",
        "byte order mark": f"\ufeff{target}",
        "right to left": f"\u202e{target[::-1]}",
        "no break space": f"{target}\u00a0",
        "long": target * 100,
        "very long": own + "x" * 100_000 + target,
        "empty": "",
        "in a list": [target],
        "in an object": {"name": target},
        "a number": 5,
        "true": True,
    }


def paths(target: str, own: str) -> dict[str, str]:
    """Spellings of a name in an address, as bytes of the request line."""
    every = "".join(f"%{ord(letter):02x}" for letter in target)
    first, rest = target[0], target[1:]
    return {
        "plain": target,
        "upper case": target.upper(),
        "percent-encoded": every,
        "first percent-encoded": f"%{ord(first):02x}{rest}",
        "percent-encoded, upper case": every.upper(),
        "percent-encoded twice": every.replace("%", "%25"),
        "percent-encoded three times": every.replace("%", "%2525"),
        "overlong UTF-8": f"%c1%{0x80 | (ord(first) & 0x3F):02x}{rest}",
        "no UTF-8": f"%ff{target}",
        "surrogate": f"%ed%a0%80{target}",
        "%u": f"%u{ord(first):04x}{rest}",
        "broken percent": f"%{target}",
        "broken percent at the end": f"{target}%7",
        "slash after": f"{target}/",
        "slashes after": f"{target}//",
        "slash before": f"/{target}",
        "encoded slash after": f"{target}%2f",
        "encoded slash before": f"%2f{target}",
        "dot segment": f"./{target}",
        "dot segments": f"{own}/../{target}",
        "encoded dot segments": f"{own}/%2e%2e/{target}",
        "dots and slashes encoded": f"{own}%2f..%2f{target}",
        "dots encoded twice": f"{own}/%252e%252e/{target}",
        "dots with a parameter": f"{own}/..;/{target}",
        "backslashes": f"{own}\\..\\{target}",
        "encoded backslashes": f"{own}%5c..%5c{target}",
        "own, encoded NUL": f"{own}%00{target}",
        "encoded NUL": f"{target}%00",
        "encoded blank": f"{target}%20",
        "plus": f"{target}+",
        "encoded tab": f"{target}%09",
        "encoded newline": f"{target}%0a",
        "encoded line of a header": f"{target}%0d%0ax-dejaq-forwarded:%201",
        "parameter": f"{target};{own}=1",
        "encoded question mark": f"{target}%3f",
        "encoded fragment": f"{target}%23",
        "star": "*",
        "question marks encoded": "%3f" * len(target),
        "prefix and star": f"{target[:3]}*",
        "own and star": f"{own}*",
        "braces": "{topic}",
        "shard": f"{target}=0-2",
        "encoded shard": f"{target}%3d0-2",
        "full width": "".join(
            "".join(f"%{byte:02x}" for byte in chr(ord(letter) + 0xFEE0).encode())
            for letter in target
        ),
        "zero width": f"{target}%e2%80%8b",
        "long": target * 100,
        "comma": f"{own},{target}",
    }


def addresses(path: str) -> dict[str, str]:
    """Spellings of a whole path.

    Args:
        path: one that the caller may not call.
    """
    inner = path.lstrip("/")
    return {
        "absolute": f"http://127.0.0.1{path}",
        "absolute, another host": f"http://localhost:1{path}",
        "absolute, with a login": f"http://root:root@127.0.0.1{path}",
        "upper case": path.upper(),
        "two slashes": f"//{inner}",
        "two slashes within": path.replace("/", "//"),
        "host in the path": f"//127.0.0.1{path}",
        "dot segment": f"/.{path}",
        "below a probe": f"/livez/..{path}",
        "below a probe, encoded": f"/livez/%2e%2e{path}",
        "below a probe, slashes encoded": f"/livez%2f..%2f{inner}",
        "below a probe, backslashes": f"/livez\\..\\{inner}",
        "below the page": f"/docs/../{inner}",
        "after a parameter": f"/livez;{path}",
        "after a fragment": f"/livez#/..{path}",
        "after a question mark": f"/livez?{path}",
        "encoded question mark": f"/livez%3f/..{path}",
        "encoded slashes": path.replace("/", "%2f"),
        "encoded v": path.replace("v1", "%761"),
        "trailing slash": f"{path}/",
        "trailing dot": f"{path}/.",
        "trailing NUL": f"{path}%00",
        "trailing blank": f"{path}%20",
        "trailing .json": f"{path}.json",
        "below the application": f"/openapi.json/../{inner}",
    }


def headers(path: str, key: str | None) -> dict[str, list[str]]:
    """Headers that somebody between might believe, beside those of the caller.

    Args:
        key: of the caller, or None.
    """
    own = f"Bearer {key}"
    return {
        "method override": ["X-HTTP-Method-Override: GET"],
        "method override to another": ["X-HTTP-Method: OPTIONS", "X-Method-Override: HEAD"],
        "original address": ["X-Original-URL: /livez", "X-Rewrite-URL: /livez"],
        "forwarded for": ["X-Forwarded-For: 127.0.0.1", "X-Real-IP: 127.0.0.1"],
        "forwarded": ["Forwarded: for=127.0.0.1;host=localhost;proto=https"],
        "forwarded host": ["X-Forwarded-Host: localhost", "X-Forwarded-Proto: https"],
        "forwarded by a broker": ["x-dejaq-forwarded: 1"],
        "follows": ["x-dejaq-follows: 1"],
        "another authorization": [f"Authorization: {own}"],
        "another authorization, basic": ["Authorization: Basic cm9vdDpyb290"],
        "other authorizations": ["Proxy-Authorization: Bearer x", "X-Authorization: Bearer x"],
        "authorization by name": ["X-API-Key: root", "Cookie: api_key=root; principal=root"],
        "authorization, underscore": ["Authorization_: Bearer x"],
        "user": ["X-Remote-User: root", "X-Forwarded-User: root", "Remote-User: root"],
        "another host": ["Host: localhost"],
        "client certificate": ["X-Client-Cert: root", "X-SSL-Client-S-DN: CN=root"],
        "upgrade": [
            "Connection: Upgrade, HTTP2-Settings",
            "Upgrade: h2c",
            "HTTP2-Settings: AAMAAABk",
        ],
        "hop by hop": ["Connection: authorization, close"],
        "prefix": [f"X-Forwarded-Prefix: {path}", "X-Script-Name: /livez"],
    }


def queries(target: str, own: str) -> dict[str, str]:
    """Names once more behind the question mark."""
    return {
        "topic": f"topic={own}",
        "topic twice": f"topic={own}&topic={target}",
        "topic as a list": f"topic[]={own}&topic%5b%5d={target}",
        "queue": f"queue_name={own}&name={own}",
        "method": "_method=GET&method=GET",
        "key": "api_key=root&access_token=root&authorization=Bearer%20root",
    }
