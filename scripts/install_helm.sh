#!/usr/bin/env bash
# Build helm from its Go module into build/helm, for the tests of the chart (tests/cli/test_helm.py). Usage: scripts/install_helm.sh
set -euo pipefail
cd "$(dirname "$0")/.."

version=v3.22.0
place="$PWD/build/helm"
mkdir -p "$place"
exec 9>"$place/lock"
flock 9
[[ "$(cat "$place/version" 2>/dev/null)" != "$version" ]] || exit 0
PATH="$PATH:/usr/local/go/bin"
if ! command -v go >/dev/null; then
    echo "install_helm.sh: Go is missing; the chart is held against what helm made of it last" >&2
    exit 1
fi
echo "building helm $version"
GOBIN="$place" GOTOOLCHAIN=auto GOFLAGS=-buildvcs=false CGO_ENABLED=0 \
    nice -n 10 go install -trimpath -ldflags '-s -w' "helm.sh/helm/v3/cmd/helm@$version"
echo "$version" >"$place/version"
