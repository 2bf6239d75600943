"""The OpenAPI document is whole: every reference leads somewhere, every route says its problems."""

from __future__ import annotations

import json
import re
from typing import Any

from dejaqueue.access.routes import ROUTES
from tests.unit.http.conftest import Api


def test_every_reference_leads_somewhere(api: Api) -> None:
    document = api.get("/openapi.json")
    assert document["openapi"].startswith("3.1")
    found = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert found
    assert found <= set(document["components"]["schemas"])


def test_every_route_of_the_api_says_its_problems(api: Api) -> None:
    paths: dict[str, Any] = api.get("/openapi.json")["paths"]
    for path, operations in paths.items():
        for method, operation in operations.items():
            place = f"{method} {path}"
            assert operation.get("summary"), place
            if not path.startswith("/v1/"):
                continue
            assert operation.get("description"), place
            for status in ("400", "401", "403", "503"):
                content = operation["responses"][status]["content"]
                assert "application/problem+json" in content, place
            assert "422" not in operation["responses"], place


def test_operations_have_the_names_and_sentences_of_the_table(api: Api) -> None:
    """Not the framework's: clients that are generated call their methods so."""
    found = {
        operation["operationId"]: (method.upper(), path, operation)
        for path, operations in api.get("/openapi.json")["paths"].items()
        for method, operation in operations.items()
    }
    assert {"send", "lease", "ack", "create_topic", "doq_enqueue"} <= found.keys()
    assert found.keys() <= ROUTES.keys()
    hidden = {"healthz", "openapi", "docs"}
    assert ROUTES.keys() - found.keys() == hidden
    for name, (method, path, operation) in found.items():
        row = ROUTES[name]
        assert (method, path) == (row.method, row.path)
        assert operation["description"].startswith(row.sentence)
