"""Files: what is not ours is unchanged and listed; all of it together is small."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from dejaqueue.console.files import address, files
from tests.unit.console.conftest import Browser

VENDOR = Path(__file__).resolve().parents[3] / "src/dejaqueue/console/vendor"
TRANSFER_BYTES_MAX = 300_000


def test_each_file_of_others_is_listed_with_its_hash() -> None:
    page = (VENDOR / "README.md").read_text()
    listed = dict(re.findall(r"^\| `([\w.]+)` .*`([0-9a-f]{64})` \|$", page, re.MULTILINE))
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.suffix in (".js", ".css")
    }
    assert found == listed


def test_all_that_a_page_loads_is_small() -> None:
    assert sum(len(file.plain) for file in files().values()) < TRANSFER_BYTES_MAX
    assert sum(len(file.packed) for file in files().values()) < TRANSFER_BYTES_MAX // 3


def test_a_file_is_kept_by_browsers_under_its_digest_alone(browser: Browser) -> None:
    answer = browser.http.get(address("console.js"))
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert answer.text == (VENDOR.parent / "static/console.js").read_text()
    plain = browser.http.get("/console/files/old/console.css", headers={"accept-encoding": "x"})
    assert (plain.headers["cache-control"], plain.status_code) == ("no-cache", 200)
    for name in ("none.js", "../console.py", "README.md", "%2e%2e/api.py"):
        assert browser.http.get(f"/console/files/x/{name}").status_code == 404
