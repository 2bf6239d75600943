#!/usr/bin/env bash
# Fetch AWS's SDKs for JavaScript and Java into build/sdks, for the programs of tests/sqs. Nothing else needs them.
# Takes Node.js, Java and Maven from Debian where it may. Usage: scripts/install_sdks.sh [javascript] [java]
set -euo pipefail
cd "$(dirname "$0")/.."

maven_plugin=3.6.1

left_out() {
    echo "install_sdks.sh: $*; what needs it is left out" >&2
    exit 1
}

from_debian() { # install packages if that may be done here
    [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null || return 1
    echo "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

node_major() { # the major version of Node.js, 0 if there is none
    node --version 2>/dev/null | sed -n 's/^v\([0-9]*\).*/\1/p' | grep . || echo 0
}

fetch_javascript() {
    local place="build/sdks/javascript" lock="tests/sqs/javascript/package-lock.json"
    command -v npm >/dev/null || from_debian nodejs npm || true
    [[ "$(node_major)" -ge 20 ]] || left_out "Node.js 20 or newer is missing"
    cmp --silent "$lock" "$place/.fetched" && return
    echo "fetching the AWS SDK for JavaScript"
    rm -rf "$place"
    mkdir -p "$place"
    cp tests/sqs/javascript/package.json "$lock" "$place"
    # npm compares each package with the hash of the lock, which names no registry: yours is used.
    (cd "$place" && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier) >"$place/log" 2>&1 || {
        tail -n 5 "$place/log" >&2
        left_out "npm could not fetch it"
    }
    cp "$lock" "$place/.fetched"
}

java_major() { # of the Java compiler, 0 if there is none
    javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p' | grep . || echo 0
}

fetch_java() {
    local place="$PWD/build/sdks/java" sums="$PWD/tests/sqs/java/dependencies.sha256"
    [[ "$(java_major)" -ge 17 ]] || from_debian openjdk-17-jdk-headless || true
    [[ "$(java_major)" -ge 17 ]] || left_out "a Java compiler of version 17 or newer is missing"
    [[ -d "$place" ]] && (cd "$place" && sha256sum --check --quiet "$sums") 2>/dev/null && return
    command -v mvn >/dev/null || from_debian maven || left_out "Maven is missing"
    echo "fetching the AWS SDK for Java"
    rm -rf "$place"
    mkdir -p build/sdks
    mvn --batch-mode --quiet --file tests/sqs/java/pom.xml -DoutputDirectory="$place" \
        "org.apache.maven.plugins:maven-dependency-plugin:$maven_plugin:copy-dependencies" >build/sdks/log 2>&1 || {
        tail -n 5 build/sdks/log >&2
        left_out "Maven could not fetch it"
    }
    # Whatever a repository answers, these are the files that were looked at.
    (cd "$place" && sha256sum --check --quiet "$sums") || left_out "what Maven fetched is not what was pinned"
    [[ "$(ls "$place" | wc -l)" == "$(wc -l <"$sums")" ]] || left_out "Maven fetched more than was pinned"
}

[[ $# -gt 0 ]] || set -- javascript java
status=0
for language in "$@"; do
    [[ "$language" == javascript || "$language" == java ]] || left_out "there is no program for $language"
    # One that cannot be fetched does not keep the other from it.
    ("fetch_$language") || status=1
done
exit "$status"
