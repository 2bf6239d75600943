"""Many clients at once: every message goes to one of them, every ack is answered, once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from httpx import Client

from tests.unit.http.doq.test_routes import is_empty, make, put

COUNT = 200


def test_every_message_is_taken_and_acked_once(http: Client) -> None:
    make(http)
    with ThreadPoolExecutor(16) as pool:
        sent = list(pool.map(lambda number: put(http, str(number), number), range(COUNT)))
        taken = list(pool.map(lambda _: http.get("/queues/q/messages").json(), range(COUNT)))
        assert sorted(message["id"] for message in taken) == sorted(sent)
        assert {message["content"] for message in taken} == {str(n) for n in range(COUNT)}
        assert is_empty(http)
        paths = [f"/queues/q/messages/{number}/ack" for number in sent]
        statuses = list(pool.map(lambda path: http.post(path).status_code, paths + paths))
    assert (statuses.count(200), statuses.count(400)) == (COUNT, COUNT)
    assert http.get("/queues/q").json()["total"] == 0


def test_what_is_done_at_once_comes_whole(http: Client) -> None:
    make(http)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: put(http, str(number)), range(COUNT)))
        path = "/queues/q/messages?ack=true"
        answers = list(pool.map(lambda _: http.get(path), range(COUNT + 50)))
    taken = [answer.json()["content"] for answer in answers if answer.status_code == 200]
    assert sorted(taken, key=int) == [str(number) for number in range(COUNT)]
    assert {answer.status_code for answer in answers} == {200, 400}


def test_one_wrong_name_among_others_is_refused_alone(http: Client) -> None:
    make(http)
    others = [put(http, "other") for _ in range(20)]
    paths = [f"/queues/q/messages/{number}" for number in ["x", *others]]
    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda path: http.delete(path).status_code, paths))
    assert statuses == [422, *[204] * 20]
