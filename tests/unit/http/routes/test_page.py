"""The page for people loads nothing from elsewhere."""

from __future__ import annotations

import re

from tests.unit.http.conftest import Api


def test_the_page_is_whole(api: Api) -> None:
    answer = api.http.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert re.findall(r"(?:src|href)=\"(?!openapi\.json)[^\"]*\"", answer.text) == []
    assert "http://" not in answer.text
    assert "https://" not in answer.text


def test_there_is_no_other_page(api: Api) -> None:
    assert api.http.get("/redoc").status_code == 404
