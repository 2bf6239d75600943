"""Covers: what the rows of `sqs` compare, that its load is signed as the broker wants it, and that
delays are measured.

Not covered: the peers, which are installed for benchmarks alone.
"""

from __future__ import annotations

from bench.questions import sqs
from bench.sqs_load import Signer
from bench.targets import TARGETS
from dejaqueue.access.api_keys import grants_of, new_key
from dejaqueue.access.signatures import Signature, SignedRequest


def test_each_target_has_a_row() -> None:
    rates = {(name, case): [5.0] for name in ("dejaq", "moto", "elasticmq") for case in sqs.CASES}
    rows = {row.case: row for row in sqs.outcome_of(rates).rows if row.system == "dejaq"}
    wanted = {target.case for target in TARGETS if target.question == "sqs"}
    assert wanted - set(rows) == {"delay_early", "delay_p99"}
    assert (rows["send"].ratio_to, rows["send_by_moto"].ratio_to) == ("elasticmq", "moto")


def test_the_load_is_signed() -> None:
    key, text = new_key("bench", grants_of(["admin:*"]), 0, None, signs=True)
    made = Signer("127.0.0.1:5", "/sqs", key.id, text).request("ListQueues", {})
    head, _, body = made.partition(b"\r\n\r\n")
    lines = [line.split(": ", 1) for line in head.decode().split("\r\n")[1:]]
    headers = {name.lower(): value for name, value in lines}
    signature = Signature.of(headers["authorization"])
    assert key.signing is not None
    assert signature.fits(SignedRequest("POST", "/sqs", "", headers, body), key.signing)


def test_delays_of_days_are_measured__and_none_is_early() -> None:
    told: list[str] = []
    found = sqs.delays(50, told.append)
    assert found["early"] == 0
    assert 0 <= found["p50"] <= found["p99"] <= found["max"]
    # A poll that began before a leap of the clock would: the broker takes its consumer for dead.
    assert told == ["delay: 50 of 50 messages came, 0 polls brought nothing"]
