#!/usr/bin/env bash
# Install object stores for the tests into build/object-stores, as locked: versitygw (S3's protocol; a Go module) and
# azurite (Azure's; from npm). Takes Node.js from Debian where it may. Usage: scripts/install_object_stores.sh
set -euo pipefail
cd "$(dirname "$0")/.."

place="$PWD/build/object-stores"
mkdir -p "$place"
exec 9>"$place/lock"
flock 9

left_out() {
    echo "install_object_stores.sh: $*; what needs it is left out" >&2
    status=1
}
status=0

build_versitygw() { # go compares each module with the hashes of go.sum
    local source=tests/conformance/versitygw
    cmp --silent "$source/go.sum" "$place/go.sum" && [[ -x "$place/versitygw" ]] && return
    PATH="$PATH:/usr/local/go/bin"
    command -v go >/dev/null || {
        left_out "Go is missing, so there is no versitygw"
        return
    }
    echo "building versitygw"
    (cd "$source" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOTOOLCHAIN=auto nice -n 10 \
        go build -trimpath -ldflags '-s -w' -o "$place/versitygw" github.com/versity/versitygw/cmd/versitygw) || {
        left_out "versitygw cannot be built"
        return
    }
    cp "$source/go.sum" "$place/"
}

fetch_azurite() { # `ci` takes what is locked and checks its hashes; no package runs a script of its own
    local source=tests/conformance/azurite home="$place/azurite"
    cmp --silent "$source/package-lock.json" "$home/.fetched" && return
    if ! command -v npm >/dev/null && [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null || true
    fi
    command -v npm >/dev/null || {
        left_out "npm is missing, so there is no azurite"
        return
    }
    echo "fetching azurite"
    rm -rf "$home"
    mkdir -p "$home"
    cp "$source/package.json" "$source/package-lock.json" "$home/"
    npm --prefix "$home" ci --silent --no-audit --no-fund --ignore-scripts || {
        left_out "npm cannot fetch azurite"
        return
    }
    cp "$source/package-lock.json" "$home/.fetched"
}

build_versitygw
fetch_azurite
exit "$status"
