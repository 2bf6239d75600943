"""Have helm render the chart for each file of values beside its golden files, and write these anew
(`make chart`).

    python -m tests.cli.chart

Runs build/helm/helm (scripts/install_helm.sh); writes tests/cli/helm alone.
Holds: `rendered-from.txt` is the digest of what was rendered, so that a golden file that is stale
is found without helm.
See: deploy/helm/dejaq, test_helm.py.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/dejaq"
GOLDEN = ROOT / "tests/cli/helm"
HELM = ROOT / "build/helm/helm"
NEWEST = "1.37.0"
"""The version of Kubernetes that is rendered for."""


def value_files() -> dict[str, Path]:
    """Files of values by the name of what is made of them."""
    return {
        path.name.removesuffix(".values.yaml"): path
        for path in sorted(GOLDEN.glob("*.values.yaml"))
    }


def digest() -> str:
    """SHA-256 of the chart and of the values, names included."""
    made = hashlib.sha256()
    paths = [path for path in CHART.rglob("*") if path.is_file()]
    for path in sorted([*paths, *value_files().values()]):
        name, content = path.relative_to(ROOT).as_posix().encode(), path.read_bytes()
        made.update(b"%d %b %d " % (len(name), name, len(content)) + content)
    return made.hexdigest()


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm, which is to write nothing into anybody's home."""
    place = ROOT / "build/helm"
    homes = {f"HELM_{name}_HOME": str(place / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [str(HELM), *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(place), **homes},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def render(values: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """`helm template` of a release that is called dejaq."""
    place = ("--namespace", "default", "--kube-version", NEWEST)
    return helm("template", "dejaq", str(CHART), "--values", str(values), *place, *more)


def main() -> None:
    """Write all golden files."""
    for name, values in value_files().items():
        made = render(values)
        if made.returncode:
            raise SystemExit(f"{values.name}: {made.stderr}")
        (GOLDEN / f"{name}.yaml").write_text(made.stdout, encoding="utf-8")
    (GOLDEN / "rendered-from.txt").write_text(digest() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
