#!/usr/bin/env bash
# Build the clients for other languages (clients/) into build/clients, for their tests (tests/clients), the program of
# tests/doq with DOQ's Go client, which is generated from our doq.proto (doq), and the Go clients of the queues that the
# benchmark `peers` compares (bench). Nothing else needs them. Takes Go, Java and Maven from Debian where it may; what is
# built from these sources is not built again.
# Usage: scripts/install_clients.sh [go] [java] [doq] [bench]; all by default.
set -euo pipefail
cd "$(dirname "$0")/.."

maven_plugin=3.6.1
doq_proto=src/dejaqueue/http/doq/door/doq.proto
go_needed="$(sed -n 's/^go \([0-9.]*\)$/\1/p' clients/go/go.mod)"

stamp_of() { # what a client is built from
    local sources=("clients/$1")
    [[ "$1" != doq ]] || sources=(tests/doq/go "$doq_proto")
    [[ "$1" != bench ]] || sources=(bench/clients/go clients/go)
    find "${sources[@]}" scripts/install_clients.sh -type f ! -name '*.md' -print0 | sort -z | xargs -0 sha256sum | sha256sum
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

with_go() { # have a Go that fetches the one that go.mod wants
    PATH="$PATH:/usr/local/go/bin"
    [[ "$(go_minor)" -ge 21 ]] || from_debian golang-go || left_out "Go is missing"
    [[ "$(go_minor)" -ge 21 ]] ||
        left_out "Go 1.$(go_minor) is too old: 1.21 or newer, which fetches Go $go_needed by itself, is needed"
    export GOTOOLCHAIN=auto GOFLAGS="-mod=readonly -buildvcs=false" CGO_ENABLED=0
}

build_go() {
    with_go
    local place="$PWD/build/clients/go"
    (
        cd clients/go &&
            go build -o "$place/" ./conformance ./example &&
            go test -c -o "$place/unit" .
    ) || left_out "Go could not build it (its modules have to be reachable: GOPROXY)"
}

build_doq() {
    with_go
    local place="$PWD/build/clients/doq" python=.venv/bin/python
    "$python" -c 'import grpc_tools' 2>/dev/null || left_out "protoc is missing: make setup"
    rm -rf "$place/sources"
    cp -r tests/doq/go "$place/sources"
    # The plugins are tools of its module: go.sum pins them.
    (
        cd "$place/sources" && go build -o "$place/" \
            google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
    ) || left_out "Go could not build protoc's plugins (their modules have to be reachable: GOPROXY)"
    "$python" -m grpc_tools.protoc "-I$(dirname "$doq_proto")" \
        "--plugin=$place/protoc-gen-go" "--go_out=$place/sources" --go_opt=module=dejaq.dev \
        "--plugin=$place/protoc-gen-go-grpc" "--go-grpc_out=$place/sources" --go-grpc_opt=module=dejaq.dev \
        "$(basename "$doq_proto")" || left_out "protoc could not generate it"
    (cd "$place/sources" && go build -o "$place/program" .) || left_out "Go could not build the program"
}

build_bench() {
    with_go
    local place="$PWD/build/clients/bench"
    (cd bench/clients/go && go build -o "$place/load" .) ||
        left_out "Go could not build it (its modules have to be reachable: GOPROXY)"
}

java_major() { # of the Java compiler, 0 if there is none
    javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p' | grep . || echo 0
}

build_java() {
    local place="$PWD/build/clients/java" sums="$PWD/clients/java/dependencies.sha256"
    [[ "$(java_major)" -ge 17 ]] || from_debian openjdk-17-jdk-headless || true
    [[ "$(java_major)" -ge 17 ]] || left_out "a Java compiler of version 17 or newer is missing"
    if ! (cd "$place/lib" && sha256sum --check --quiet "$sums") 2>/dev/null; then
        command -v mvn >/dev/null || from_debian maven || left_out "Maven is missing"
        rm -rf "$place/lib"
        mvn --batch-mode --quiet --file clients/java/pom.xml -DoutputDirectory="$place/lib" \
            "org.apache.maven.plugins:maven-dependency-plugin:$maven_plugin:copy-dependencies" >"$place/log" 2>&1 || {
            tail -n 5 "$place/log" >&2
            left_out "Maven could not fetch what it takes"
        }
        # Whatever a repository answers, these are the files that were looked at.
        (cd "$place/lib" && sha256sum --check --quiet "$sums") || left_out "what Maven fetched is not what was pinned"
        [[ "$(ls "$place/lib" | wc -l)" == "$(wc -l <"$sums")" ]] || left_out "Maven fetched more than was pinned"
    fi
    rm -rf "$place/classes"
    javac -Xlint:unchecked,rawtypes,deprecation,cast,fallthrough -Werror --release 17 -d "$place/classes" -cp "$place/lib/*" \
        clients/java/src/main/java/dejaqueue/*.java || left_out "it does not compile"
}

mkdir -p build/clients
exec 9>build/clients/lock
flock 9 # tests of several processes ask for it
[[ $# -gt 0 ]] || set -- go java doq bench
status=0
for language in "$@"; do
    [[ "$language" == go || "$language" == java || "$language" == doq || "$language" == bench ]] || left_out "there is no client for $language"
    place="build/clients/$language"
    stamp="$(stamp_of "$language")"
    [[ "$(cat "$place/stamp" 2>/dev/null)" == "$stamp" ]] && continue
    echo "building the $language client"
    mkdir -p "$place"
    # One client that cannot be built does not keep the other from it.
    if ("build_$language"); then echo "$stamp" >"$place/stamp"; else status=1; fi
done
exit "$status"
