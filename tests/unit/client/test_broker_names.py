"""Covers: which URLs have names to look up, and what is made of a resolver's answers.

Not covered: a client that finds brokers so (tests/integration/test_broker_names.py).
"""

from __future__ import annotations

from socket import AF_INET, AF_INET6, SOCK_STREAM, gaierror
from typing import Any

import pytest

from dejaqueue.client import broker_names
from dejaqueue.client.broker_names import Names
from dejaqueue.client.credentials import Tls
from dejaqueue.errors import BadRequest, Refused, Unavailable

Answers = dict[str, list[str]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """What the resolver says of a name."""
    known: Answers = {}

    def getaddrinfo(name: str, port: int, **_kind: int) -> list[tuple[Any, ...]]:
        if name not in known:
            raise gaierror(-2, "Name or service not known")
        return [
            (AF_INET6 if ":" in host else AF_INET, SOCK_STREAM, 6, "", (host, port))
            for host in known[name]
        ]

    monkeypatch.setattr(broker_names, "getaddrinfo", getaddrinfo)
    return known


def names_of(url: str) -> Names:
    names = Names.of(url)
    assert names is not None
    return names


@pytest.mark.parametrize("url", ["dejaq://a:1", "dejaqs://a,b", "nonsense"])
def test_what_has_addresses_is_not_looked_up(url: str) -> None:
    assert Names.of(url) is None


@pytest.mark.parametrize(
    "url",
    ["dejaq+mx://a", "dejaq+dns:a", "http+dns://a", "dejaq+dns://a,", "dejaq+srv://a:7464"],
)
def test_a_form_that_is_none_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_names, "find_spec", lambda _name: object())
    with pytest.raises(BadRequest, match="url"):
        Names.of(url)


def test_srv_needs_a_package__which_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_names, "find_spec", lambda _name: None)
    with pytest.raises(Refused, match=r"pip install 'dejaqueue\[dns\]'"):
        Names.of("dejaq+srv://a")


def test_each_address_is_a_broker__of_either_kind__once(answers: Answers) -> None:
    answers["a"] = ["10.0.0.1", "10.0.0.1", "fd00::1"]
    found = names_of("dejaq+dns://a:7000").look_up()
    assert sorted(found) == ["dejaq://10.0.0.1:7000", "dejaq://[fd00::1]:7000"]


def test_clients_begin_at_different_addresses(answers: Answers) -> None:
    answers["a"] = [f"10.0.0.{place}" for place in range(4)]
    first = {names_of("dejaq+dns://a").look_up()[0] for _ in range(200)}
    assert first == {f"dejaq://10.0.0.{place}:7464" for place in range(4)}


def test_one_of_several_names_is_enough(answers: Answers) -> None:
    answers["b"] = ["10.0.0.2"]
    assert names_of("dejaq+dns://a,b:1").look_up() == ["dejaq://10.0.0.2:1"]


def test_a_name_without_an_answer_is_unavailable__and_nobody_was_asked(answers: Answers) -> None:
    with pytest.raises(Unavailable, match="by the name a: .*not known") as caught:
        names_of("dejaq+dns://a").look_up()
    assert caught.value.is_unheard


def test_an_answer_has_a_bound(answers: Answers) -> None:
    answers["a"] = [f"10.0.{place // 250}.{place % 250}" for place in range(1_000)]
    assert len(names_of("dejaq+dns://a").look_up()) == broker_names.FOUND_MAX


def test_services_come_by_priority__within_one_by_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def records(name: str) -> list[tuple[int, int, int, str]]:
        asked.append(name)
        return [(10, 5, 7464, "last."), (1, 90, 1, "heavy."), (1, 10, 2, "light."), (1, 0, 3, ".")]

    monkeypatch.setattr(broker_names, "srv_records", records)
    monkeypatch.setattr(broker_names, "find_spec", lambda _name: object())
    names = names_of("dejaq+srv://example.org")
    orders = [names.look_up() for _ in range(400)]
    assert set(asked) == {"_dejaq._tcp.example.org"}
    assert {tuple(sorted(order[:2])) for order in orders} == {
        ("dejaq://heavy:1", "dejaq://light:2")
    }
    assert {order[2] for order in orders} == {"dejaq://last:7464"}, "a target of . is none"
    heavy = sum(order[0] == "dejaq://heavy:1" for order in orders)
    assert 300 < heavy < 400


def test_an_address_shows_a_certificate_for_the_name(answers: Answers) -> None:
    answers["a.example.org"] = ["10.0.0.1"]
    names = names_of("dejaqs+dns://a.example.org")
    [url] = names.look_up()
    own = Tls(ca="ca.pem")
    assert url == "dejaqs://10.0.0.1:7464"
    assert names.tls(url, None) == Tls(server_name="a.example.org")
    assert names.tls(url, own) == Tls(ca="ca.pem", server_name="a.example.org")
    assert names.tls(url, Tls(server_name="mine")) == Tls(server_name="mine")
    assert names.tls("dejaqs://b.example.org:7464", own) is own, "a broker told of it by its name"


def test_without_tls_no_name_is_needed(answers: Answers) -> None:
    answers["a"] = ["10.0.0.1"]
    names = names_of("dejaq+dns://a")
    assert names.tls(names.look_up()[0], None) is None
