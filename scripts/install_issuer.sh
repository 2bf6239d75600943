#!/usr/bin/env bash
# Install the OpenID Connect issuer of the tests into .venv/oidc-issuer, as locked. Needs node 20 and npm;
# takes them from Debian where it may. Usage: scripts/install_issuer.sh
set -euo pipefail
cd "$(dirname "$0")/.."

source=tests/integration/oidc_issuer
place=.venv/oidc-issuer
if cmp --silent "$source/package-lock.json" "$place/package-lock.json" && [ -d "$place/node_modules" ]; then
    exit 0
fi
if ! command -v npm >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get install --yes --no-install-recommends nodejs npm >/dev/null
    else
        echo "install_issuer.sh: node and npm are missing; tests with an issuer are left out" >&2
        exit 0
    fi
fi
rm -rf "$place"
mkdir -p "$place"
cp "$source/package.json" "$source/package-lock.json" "$place/"
# `ci` takes what is locked and checks its hashes; no package runs a script of its own.
npm --prefix "$place" ci --silent --no-audit --no-fund --ignore-scripts
