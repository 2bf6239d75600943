"""Covers: what of the light client is generated is fresh; its names and arguments are those of
DejaQ's own client, but for what is listed here; its two sides are alike; its docstrings' examples.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import dejaqueue
import dejaqueue.client
import dejaqueue_client
from dejaqueue import errors
from tests.tidy import house_rules as house

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "clients" / "python" / "src" / "dejaqueue_client"

LEFT_OUT = {
    "Client.producer",  # `send_batch` gathers; one that gives futures is the other client's
    "Consumer.lateness",  # of what came by way of requests, which are late by a round trip
    "BatchConsumer.lateness",
    "MessageBatch.take",
    "Client.upload",  # payloads beyond a request
    "Client.erase",  # what an operator does, by the command or HTTP
    "Message.open",
}
OTHER_ARGUMENTS = {
    "Client.send_batch": {"acks"},  # HTTP answers when it is durable
    "Client.consume_batches": {"prefetch", "until_settled"},  # a batch is what one request brought
    "Message.extend": {"wait"},
    "MessageBatch.ack": {"wait"},
    "MessageBatch.nack": {"wait"},
    "MessageBatch.extend": {"wait"},
}


def test_the_copies_are_fresh() -> None:
    script = ROOT / "scripts" / "generate_light_client.py"
    found = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


def public(kind: type) -> dict[str, set[str]]:
    return {
        name: set(inspect.signature(member).parameters)
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


KINDS = ("Client", "Consumer", "BatchConsumer", "Message", "MessageBatch", "Cron", "Transaction")


@pytest.mark.parametrize("name", KINDS)
def test_it_has_the_names_and_arguments_of_the_other_client(name: str) -> None:
    theirs = public(getattr(dejaqueue.client, name))
    ours = public(getattr(dejaqueue_client, name))
    left_out = {f"{name}.{method}" for method in theirs.keys() - ours.keys()}
    assert left_out == {one for one in LEFT_OUT if one.startswith(f"{name}.")}
    assert ours.keys() - theirs.keys() == set()
    differ = {
        f"{name}.{method}": theirs[method] ^ arguments
        for method, arguments in ours.items()
        if theirs[method] != arguments
    }
    listed = {one: words for one, words in OTHER_ARGUMENTS.items() if one.startswith(f"{name}.")}
    assert differ == listed


@pytest.mark.parametrize("name", KINDS)
def test_both_sides_have_the_same_names_and_arguments(name: str) -> None:
    one = public(getattr(dejaqueue_client, name))
    assert one == public(getattr(dejaqueue_client, f"Async{name}"))
    assert one


def test_every_public_name_of_dejaqueue_is_there_but_what_needs_a_broker_here() -> None:
    here = {"open", "open_async"}
    assert set(dejaqueue.__all__) - here - set(dejaqueue_client.__all__) == set()
    assert set(dejaqueue_client.__all__) <= set(dir(dejaqueue_client))


def test_the_errors_are_the_same_by_name_and_number() -> None:
    theirs = {kind.__name__: kind.number for kind in errors.all_errors()}
    assert {k.__name__: k.number for k in dejaqueue_client.errors.all_errors()} == theirs


def modules() -> list[str]:
    return [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_a_module_run(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert found.failed == 0


def test_its_modules_keep_the_house_rules() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        source = house.read(str(path.relative_to(ROOT)))
        plate = [] if path.name == "version.py" else house.missing_plate(source)
        found = [*plate, *house.too_long_file(source, {})]
        found += house.too_long_functions(source, {})
        assert found == []


def test_it_imports_neither_dejaqueue_nor_anything_but_httpx() -> None:
    known = {*sys.stdlib_module_names, "httpx", "dejaqueue_client"}
    for path in sorted(PACKAGE.rglob("*.py")):
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words[:1] in (["import"], ["from"]) and len(words) > 1 and "import" in words:
                assert words[1].partition(".")[0] in known, f"{path.name}: {line}"
