#!/usr/bin/env bash
# Two environments of their own: .venv/audit has the tools, .venv/release exactly what a release with all
# extras of servers brings, as locked. Usage: scripts/install_audit.sh
set -euo pipefail
cd "$(dirname "$0")/.."

filled() { # filled PLACE FILE...: an environment with what these files lock, and nothing else: no pip of its own
    local place="$1"
    shift
    if cmp --silent <(cat "$@") "$place/.installed"; then
        return
    fi
    rm -rf "$place"
    .venv/bin/python -m venv --without-pip "$place"
    local file
    for file in "$@"; do
        .venv/bin/python -m pip --python "$place/bin/python" --disable-pip-version-check --no-input install --quiet \
            --no-deps --root-user-action=ignore --require-hashes --requirement "$file"
    done
    cat "$@" >"$place/.installed"
}
filled .venv/audit requirements/audit.txt
filled .venv/release requirements/run.txt requirements/cluster.txt
