#!/usr/bin/env bash
# Write what a release consists of, as CycloneDX JSON: the same bytes for the same locks, Python and kind of machine.
# Usage: scripts/sbom.sh [FILE | --twice]; --twice makes it from two fresh copies of what is committed, and compares.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ "${1:-}" == "--twice" ]]; then
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    for copy in "$work/one" "$work/a second/deeper"; do
        git clone --quiet --no-hardlinks . "$copy"
        (cd "$copy" && scripts/make_venv.sh && scripts/sbom.sh "$copy.json")
    done
    cmp "$work/one.json" "$work/a second/deeper.json"
    echo "two fresh checkouts, the same bytes: $(sha256sum <"$work/one.json" | cut -d ' ' -f 1)"
    exit
fi

scripts/install_audit.sh
output="${1:-dist/dejaqueue.cdx.json}"
mkdir -p "$(dirname "$output")"
# The tool does not know a version that is read from a file while building.
project="$(mktemp)"
trap 'rm -f "$project"' EXIT
version="$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' src/dejaqueue/version.py)"
sed "s/^dynamic = \[\"version\", \"readme\"\]\$/version = \"${version:?}\"/" pyproject.toml >"$project"
.venv/audit/bin/cyclonedx-py environment --pyproject "$project" --mc-type application \
    --output-reproducible --of JSON --output-file "$output" .venv/release/bin/python
echo "wrote $output"
