#!/usr/bin/env bash
# Two environments of their own: .venv/audit has the tools, .venv/release exactly what a release with all
# extras of servers brings, as locked. Usage: scripts/install_audit.sh
set -euo pipefail
cd "$(dirname "$0")/.."

filled() { # filled PLACE FILE...: an environment with what these files lock
    local place="$1"
    shift
    if cmp --silent <(cat "$@") "$place/.installed"; then
        return
    fi
    rm -rf "$place"
    .venv/bin/python -m venv "$place"
    local file
    for file in "$@"; do
        "$place/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-deps \
            --root-user-action=ignore --require-hashes --requirement "$file"
    done
    cat "$@" >"$place/.installed"
}
filled .venv/audit requirements/audit.txt
filled .venv/release requirements/build.txt requirements/run.txt requirements/cluster.txt
