"""Names, addresses and ARNs of queues."""

from __future__ import annotations

import pytest

from dejaqueue.http.sqs.names import (
    arn_of,
    is_fifo,
    name_of_arn,
    name_of_url,
    new_name,
    url_of,
)
from dejaqueue.http.sqs.refusals import SqsRefusal


def test_an_address_and_an_arn_lead_back_to_the_name() -> None:
    url = url_of("http://localhost:7465", "q.fifo")
    assert url == "http://localhost:7465/sqs/000000000000/q.fifo"
    assert name_of_url(url) == name_of_url("q.fifo") == "q.fifo"
    assert name_of_arn(arn_of("eu-west-1", "q.fifo"), "SourceArn") == "q.fifo"
    assert is_fifo("q.fifo")
    assert not is_fifo("q")


@pytest.mark.parametrize("url", [None, "", 5, "http://h/sqs/", "http://[", "http://h/a b"])
def test_what_is_no_address_is_refused(url: object) -> None:
    with pytest.raises(SqsRefusal) as refused:
        name_of_url(url)
    assert refused.value.name == "InvalidAddress"


@pytest.mark.parametrize("arn", [None, "q", "arn:aws:sns:a:1:q", "arn:aws:sqs:a:1:q/b"])
def test_what_is_no_arn_is_refused(arn: object) -> None:
    with pytest.raises(SqsRefusal, match="SourceArn: arn:aws:sqs:REGION:"):
        name_of_arn(arn, "SourceArn")


@pytest.mark.parametrize("name", [None, "", "a" * 81, "a.b", "a" * 76 + ".fifo", "a b"])
def test_new_names_are_those_that_sqs_allows(name: object) -> None:
    with pytest.raises(SqsRefusal, match="QueueName: 1 to 80 characters"):
        new_name(name)
    assert new_name("a" * 75 + ".fifo")
