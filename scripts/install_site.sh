#!/usr/bin/env bash
# What makes the documentation's site, as locked, in an environment of its own: build/site/tools. Usage: scripts/install_site.sh
set -euo pipefail
cd "$(dirname "$0")/.."

tools=build/site/tools
lock=requirements/site.txt
mkdir -p build/site
exec 9>build/site/lock
flock 9 # tests of several processes ask for it
if cmp --silent "$lock" "$tools/.installed"; then
    exit
fi
echo "installing $lock"
rm -rf "$tools"
.venv/bin/python -m venv --without-pip "$tools"
.venv/bin/python -m pip --python "$tools/bin/python" --disable-pip-version-check --no-input install --quiet \
    --no-deps --root-user-action=ignore --require-hashes --requirement "$lock"
cp "$lock" "$tools/.installed"
