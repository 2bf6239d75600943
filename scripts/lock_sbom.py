"""What a lock file brings beside DejaQ, as CycloneDX JSON: versions, hashes, licences. The image
has it inside.

    python scripts/lock_sbom.py requirements/image.txt sbom.cdx.json

`make sbom` asks an installed environment by a tool; this reads the lock alone, so it needs neither
packages nor a network.

Room: scripts. Reads a lock, the table of licences and the version; needs nothing but Python.
Holds: the same lock is the same bytes; a package without a licence in the table ends it.
See: Dockerfile, docs/reference/licences.md, tests/cli/test_sbom.py.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_LOCKED = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^ ;\\]+)(?: ; ([^\\\n]*[^\\\s]))?", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|", re.MULTILINE)


def components(lock: str, licences: dict[str, str]) -> list[dict[str, Any]]:
    """What is locked, in the order of the lock.

    Args:
        licences: SPDX expression by package.

    Raises:
        SystemExit: a package has none.
    """
    found = []
    places = list(_LOCKED.finditer(lock))
    for place, after in zip(places, [*places[1:], None], strict=True):
        name, version, marker = place.groups()
        if name not in licences:
            raise SystemExit(f"lock_sbom.py: {name} is not in the table of licences: make licences")
        text = lock[place.end() : after.start() if after else len(lock)]
        url = f"pkg:pypi/{name}@{version}"
        one: dict[str, Any] = {
            "type": "library",
            "bom-ref": url,
            "name": name,
            "version": version,
            "purl": url,
            "licenses": [{"expression": licences[name]}],
            # Of all files that the lock allows: which one is taken depends on the machine.
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": url,
                    "hashes": [{"alg": "SHA-256", "content": digest}],
                }
                for digest in _HASH.findall(text)
            ],
        }
        if marker:
            one["properties"] = [{"name": "python:marker", "value": marker}]
        found.append(one)
    return found


def document(lock: str, licences: dict[str, str], version: str) -> dict[str, Any]:
    """The whole list; its serial number is made of its content."""
    parts = components(lock, licences)
    own = f"pkg:pypi/dejaqueue@{version}"
    made: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "dejaqueue",
                "version": version,
                "purl": own,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": [one["bom-ref"] for one in parts]}],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made, sort_keys=True))
    return {"serialNumber": f"urn:uuid:{serial}", **made}


def written(lock: Path) -> str:
    """The list for a lock of this checkout, as a file."""
    page = (ROOT / "docs/reference/licences.md").read_text(encoding="utf-8")
    licences = {name: licence.strip() for name, _, licence in _ROW.findall(page)}
    source = (ROOT / "src/dejaqueue/version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.*)"$', source, re.MULTILINE)
    assert found is not None
    made = document(lock.read_text(encoding="utf-8"), licences, found[1])
    return json.dumps(made, indent=1, sort_keys=True) + "\n"


def main(arguments: list[str]) -> None:
    """Write it where the second argument says."""
    if len(arguments) != 2:
        raise SystemExit(__doc__)
    Path(arguments[1]).write_text(written(Path(arguments[0])), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
