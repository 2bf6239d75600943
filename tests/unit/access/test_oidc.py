"""Tokens that are no good, and such as are. With a real issuer: tests/integration/test_oidc.py."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from dejaqueue import limits
from dejaqueue.access.issuer_keys import IssuerKeys
from dejaqueue.access.key_ring import InMemory, KeyRing
from dejaqueue.access.oidc import Tokens
from dejaqueue.access.roles import Role
from dejaqueue.errors import Unauthenticated
from dejaqueue.setting_groups import OidcSettings
from dejaqueue.testing.virtual_clock import VirtualClock

ISSUER, AUDIENCE = "https://issuer.example", "queue"
RSA = rsa.generate_private_key(65_537, 2_048)
EC = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, kid: str, **more: str) -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if key is RSA else jwt.algorithms.ECAlgorithm
    found: dict[str, Any] = algorithm.to_jwk(key.public_key(), as_dict=True)
    return found | {"kid": kid} | more


class World:
    """A broker's keys and an issuer's, and a clock."""

    def __init__(self, place: Path, **settings: Any) -> None:
        listed = [
            jwk(RSA, "r"),
            jwk(EC, "e", alg="ES256"),
            jwk(RSA, "enc", use="enc"),
            {"kty": "oct", "kid": "o", "k": "AAAA" * 16, "alg": "HS256"},
            {"kty": "new", "kid": "n"},
        ]
        file = place / "keys.json"
        file.write_text(json.dumps({"keys": listed}))
        named: dict[str, Any] = {
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "keys": str(file),
            "leeway_ms": 1_000,
        }
        self.settings = OidcSettings(**(named | settings))
        self.clock = VirtualClock()
        self.keys = KeyRing(self.clock, InMemory())
        self.issuer = IssuerKeys(self.settings, self.clock)
        self.issuer.refresh()
        self.tokens = Tokens(self.settings, self.keys, self.issuer)
        self.keys.create("root", ["admin:*"])
        self.keys.create("oidc:a", ["produce:a.*"])

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = self.clock.now_ms() // 1_000
        good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "me", "exp": now + 60, "roles": ["a", "z"]}
        return {name: value for name, value in (good | changes).items() if value is not None}

    def token(self, key: Any = RSA, algorithm: str = "RS256", **changes: Any) -> str:
        header = {"kid": changes.pop("kid", "r" if key is RSA else "e")}
        return jwt.encode(self.claims(**changes), key, algorithm, header)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def part(values: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).rstrip(b"=").decode()


def test_a_good_token_names_its_bearer_and_has_roles(world: World) -> None:
    for token in (world.token(), world.token(EC, "ES256"), world.token(aud=["x", AUDIENCE])):
        found = world.tokens.principal(token)
        assert found.name == "oidc:me"
        assert found.may(Role.PRODUCE, "a.b")
        assert not found.may(Role.PRODUCE, "b")
        assert world.tokens.is_live(found)


def test_what_is_forged_is_refused(world: World) -> None:
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    other = rsa.generate_private_key(65_537, 2_048)
    secret = part({"alg": "HS256", "kid": "r"}) + "." + part(world.claims())
    import hashlib
    import hmac

    mac = hmac.new(public, secret.encode(), hashlib.sha256).digest()
    confused = f"{secret}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    good = world.token()
    head, body, signature = good.split(".")
    for forged, why in (
        (part({"alg": "none"}) + "." + part(world.claims()) + ".", "algorithm"),
        (part({"alg": "None", "kid": "r"}) + "." + part(world.claims()) + ".", "algorithm"),
        (confused, "algorithm"),
        (jwt.encode(world.claims(), "A" * 64, "HS256", {"kid": "o"}), "algorithm"),
        (world.token(other, kid="r"), "signature"),
        (world.token(EC, "ES256", kid="r"), "no such key"),
        (world.token(kid="e"), "no such key"),
        (world.token(kid="enc"), "no such key"),
        (world.token(kid="strange"), "no such key"),
        (jwt.encode(world.claims(), RSA, "RS256"), "no such key"),  # there are several
        (world.token(algorithm="RS512"), "algorithm"),  # not one of those allowed
        (f"{head}.{part(world.claims(sub='root'))}.{signature}", "signature"),
        (f"{head}.{body}.", "signature"),
        (good + "A" * limits.OIDC_TOKEN_BYTES_MAX, "too long"),
        ("eyJ.x.y", "form"),
        ("ey\udc80.x.y", "form"),
        (part({"alg": ["RS256"], "kid": "r"}) + ".e30.x", "its "),
        (part({"alg": "RS256", "kid": {"a": 1}}) + ".e30.x", "its form|no such key"),
    ):
        with pytest.raises(Unauthenticated, match=why):
            world.tokens.principal(forged)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iss": "https://issuer.example.evil"}, "somebody else issued it"),
        ({"iss": None}, "no claim iss"),
        ({"aud": "other"}, "for somebody else"),
        ({"aud": None}, "no claim aud"),
        ({"sub": None}, "no claim sub"),
        ({"exp": None}, "no claim exp"),
        ({"exp": "never"}, "exp is no instant"),
        ({"exp": True}, "exp is no instant"),
        ({"exp": 1e300}, "exp is no instant"),
        ({"exp": -1}, "exp is no instant"),
        ({"exp": 1}, "has ended"),
        ({"nbf": 99_000_000_000}, "not begun"),
        ({"nbf": []}, "nbf is no instant"),
    ],
)
def test_claims_that_do_not_fit_are_refused(
    world: World, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(Unauthenticated, match=why):
        world.tokens.principal(world.token(**changes))


def test_a_token_counts_until_its_end_and_the_leeway(world: World) -> None:
    token = world.token()
    found = world.tokens.principal(token)
    world.clock.advance(ms=60_900)
    assert world.tokens.principal(token) is found
    assert world.tokens.is_live(found)
    world.clock.advance(ms=200)
    assert not world.tokens.is_live(found)
    with pytest.raises(Unauthenticated, match="has ended"):
        world.tokens.principal(token)


def test_roles_follow_the_keys_of_their_name(world: World) -> None:
    token = world.token()
    before = world.tokens.principal(token)
    made, _ = world.keys.create("oidc:z", ["consume:z"])
    after = world.tokens.principal(token)
    assert (before.may(Role.CONSUME, "z"), after.may(Role.CONSUME, "z")) == (False, True)
    world.keys.revoke(made.id)
    assert world.tokens.is_live(before)
    assert not world.tokens.is_live(after)
    assert not world.tokens.principal(token).may(Role.CONSUME, "z")
    assert world.tokens.ends_ms(before) == before.ends_ms


def test_no_more_tokens_are_remembered_than_the_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OIDC_TOKENS_MAX", 3)
    for number in range(10):
        world.tokens.principal(world.token(sub=str(number)))
    assert len(world.tokens._known) == 3


def test_roles_beyond_the_limit_are_not_looked_at(world: World) -> None:
    many = [str(number) for number in range(limits.OIDC_ROLES_MAX)]
    assert not world.tokens.principal(world.token(roles=[*many, "a"])).grants
    assert world.tokens.principal(world.token(roles=[*many[1:], "a"])).grants


@pytest.mark.parametrize("roles", [None, 5, {"a": 1}, [["a"]], [None], ""])
def test_claims_that_are_no_roles_give_none(world: World, roles: Any) -> None:
    assert world.tokens.principal(world.token(roles=roles)).grants == ()


def test_a_name_that_is_no_text_for_a_log_is_a_digest(world: World) -> None:
    name = world.tokens.principal(world.token(sub='x" outcome="done')).name
    assert name.startswith("oidc:")
    assert len(name) == 5 + 32
    assert world.tokens.principal(world.token(sub="auth0|17")).name == "oidc:auth0|17"


def test_settings_without_an_audience_or_with_shared_secrets_are_refused() -> None:
    with pytest.raises(ValueError, match="needs audience"):
        OidcSettings(issuer=ISSUER)
    for names in ("HS256", "none", "RS256,HS256", ""):
        with pytest.raises(ValueError, match="algorithms"):
            OidcSettings(algorithms=names)
