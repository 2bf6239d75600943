#!/usr/bin/env bash
# Write what a release consists of, as CycloneDX JSON: the same bytes for the same locks. Usage: scripts/sbom.sh [FILE]
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_audit.sh
output="${1:-dist/dejaqueue.cdx.json}"
mkdir -p "$(dirname "$output")"
.venv/audit/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application \
    --output-reproducible --of JSON --output-file "$output" .venv/release/bin/python
echo "wrote $output"
