"""Covers: jobs and queries against a broker with TLS and API keys.

The key and the files travel from the driver to every task.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from dejaqueue.access.tls import load_tls
from dejaqueue.settings import ServerSettings
from tests.integration.access_fixture import MINE, Site, give_keys, make_topics, running
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 300
PAST_MS = 1_600_000_000_000


@pytest.fixture
def authority(tmp_path: Path) -> str:
    """Certificates of a broker; the file of who signed them."""
    signer = trustme.CA()
    issued = signer.issue_cert("localhost", "127.0.0.1")
    signer.cert_pem.write_to_path(tmp_path / "ca.pem")
    for blob in issued.cert_chain_pems:
        blob.write_to_path(tmp_path / "broker.pem", append=True)
    issued.private_key_pem.write_to_path(tmp_path / "broker.key")
    return str(tmp_path / "ca.pem")


@pytest.fixture
def site(authority: str, tmp_path: Path) -> Iterator[Site]:
    """A broker with TLS that wants keys."""
    settings = ServerSettings(
        tls_certificate=str(tmp_path / "broker.pem"), tls_key=str(tmp_path / "broker.key")
    )
    with running(load_tls(settings)) as one:
        give_keys(one)
        make_topics(one.broker)
        yield one


def options(site: Site, authority: str, key: str) -> dict[str, str]:
    text = site.keys[f"{key} mine"]
    assert text is not None
    url = f"dejaqs://127.0.0.1:{site.flight.port}"
    return {"url": url, "topic": MINE, "api_key": text, "tls.ca": authority}


def save(spark: SparkSession, given: dict[str, str], due: int) -> None:
    table = spark.range(0, ROWS, 1, 2).selectExpr("'p' || id payload", f"{due}L due")
    table.write.format("dejaq").options(**given).mode("append").save()


def drain(spark: SparkSession, given: dict[str, str], folder: Path) -> int:
    reader: Any = spark.readStream.format("dejaq").options(**given).schema("payload string")
    writer = reader.load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination(PATIENCE_SECONDS)
    return sum(batch.numInputRows for batch in query.recentProgress)


def test_each_role_does_what_it_may__over_tls(
    spark: SparkSession, site: Site, authority: str, tmp_path: Path
) -> None:
    save(spark, options(site, authority, "produce"), PAST_MS)
    read = spark.read.format("dejaq").options(**options(site, authority, "manage")).load()
    assert read.count() == ROWS
    assert drain(spark, options(site, authority, "consume"), tmp_path / "c") == ROWS


def test_who_may_not_is_refused__and_no_key_is_in_the_error(
    spark: SparkSession, site: Site, authority: str
) -> None:
    given = options(site, authority, "consume")
    with pytest.raises(Exception, match="produce") as refused:
        save(spark, given, PAST_MS)
    assert given["api_key"] not in str(refused.value)
    del given["api_key"]
    with pytest.raises(Exception, match="API key"):
        save(spark, given, PAST_MS)


def test_a_broker_that_an_unknown_authority_signed_is_not_trusted(
    spark: SparkSession, site: Site, authority: str, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    given = options(site, authority, "produce") | {"tls.ca": str(tmp_path / "other.pem")}
    with pytest.raises(Exception, match="certificate|handshake|TLS|SSL"):
        save(spark, given, PAST_MS)
