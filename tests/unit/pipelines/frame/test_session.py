"""Sessions: who lacks something is told what; settings are read. Starting Spark: tests/spark."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.frame import session as module
from dejaqueue.pipelines.frame.session import Session, parse_settings, spark_session


def refusal() -> str:
    from dejaqueue.pipelines.frame.progress import Quiet

    with pytest.raises(BadRequest) as refused, spark_session(Session(), None, Quiet()):
        pass
    return str(refused.value)


def java(folder: Path, said: str) -> None:
    path = folder / "bin" / "java"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    path.chmod(0o755)


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'dejaqueue[spark]'" in refusal()


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="the extra `spark` is not installed")
    monkeypatch.setattr(sql.SparkSession, "getActiveSession", classmethod(lambda kind: None))


@pytest.mark.usefixtures("no_session")
def test_without_java_it_is_said_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal().startswith("Java: version 17 or newer")
    assert refusal().endswith("got: 'none in PATH'")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert refusal().endswith("got: 'none in JAVA_HOME'")


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize(
    ("said", "got"),
    [('openjdk version "11.0.2" 2019', "'11'"), ('java version "1.8.0_1"', "'8'"), ("hm", "'hm'")],
)
def test_an_old_java_is_refused_with_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, got: str
) -> None:
    java(tmp_path, said)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert refusal().endswith(f"got: {got}")


def test_settings_have_a_name_and_a_value() -> None:
    assert parse_settings(("a=b", " c = d=e ", "f=")) == {"a": "b", "c": "d=e", "f": ""}
    for text in ("a", "=b"):
        with pytest.raises(BadRequest, match="--conf"):
            parse_settings((text,))


def test_a_local_session_is_told_to_stay_on_loopback() -> None:
    settings = module.LOCAL_SETTINGS
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"
