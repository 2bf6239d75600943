#!/usr/bin/env bash
# Build the clients for other languages (clients/) into build/clients, for their tests (tests/clients). Nothing else
# needs them. Takes Go, Java and Maven from Debian where it may; what is built from these sources is not built again.
# Usage: scripts/install_clients.sh [go] [java]; both by default.
set -euo pipefail
cd "$(dirname "$0")/.."

go_needed="$(sed -n 's/^go \([0-9.]*\)$/\1/p' clients/go/go.mod)"

stamp_of() { # what a client is built from
    find "clients/$1" docs/wire.md "$0" -type f ! -name '*.md' -print0 | sort -z | xargs -0 sha256sum | sha256sum
}

left_out() {
    echo "install_clients.sh: $*; the client is not built, and its tests are left out" >&2
    exit 1
}

from_debian() { # install packages if that may be done here
    [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null || return 1
    echo "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

go_minor() { # the minor version of Go 1, 0 if there is none; Go from 1.21 on fetches the one that go.mod wants
    GOTOOLCHAIN=local go version 2>/dev/null | sed -n 's/.* go1\.\([0-9]*\).*/\1/p' | grep . || echo 0
}

build_go() {
    PATH="$PATH:/usr/local/go/bin"
    [[ "$(go_minor)" -ge 21 ]] || from_debian golang-go || left_out "Go is missing"
    [[ "$(go_minor)" -ge 21 ]] ||
        left_out "Go 1.$(go_minor) is too old: 1.21 or newer, which fetches Go $go_needed by itself, is needed"
    export GOTOOLCHAIN=auto GOFLAGS="-mod=readonly -buildvcs=false" CGO_ENABLED=0
    local place="$PWD/build/clients/go"
    (
        cd clients/go
        go build -o "$place/" ./conformance ./example
        go test -c -o "$place/unit" .
    ) || left_out "Go could not build it (its modules have to be reachable: GOPROXY)"
}

for language in "${@:-go}"; do
    place="build/clients/$language"
    stamp="$(stamp_of "$language")"
    [[ "$(cat "$place/stamp" 2>/dev/null)" == "$stamp" ]] && continue
    echo "building the $language client"
    mkdir -p "$place"
    rm -f "$place/stamp"
    "build_$language"
    echo "$stamp" >"$place/stamp"
done
