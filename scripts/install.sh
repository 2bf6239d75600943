#!/usr/bin/env bash
# Install locked packages into .venv, then DejaQ itself. Usage: scripts/install.sh run|dev|bench|spark ...
# Every file is checked against its hash. Nothing is done for a set that is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

pip() {
    .venv/bin/python -m pip --disable-pip-version-check --no-input "$@"
}
install() {
    pip install --quiet --root-user-action=ignore --no-deps --no-build-isolation "$@"
}

for set in build "$@"; do
    stamp=".venv/.installed-$set"
    if ! cmp --silent "requirements/$set.txt" "$stamp"; then
        echo "installing requirements/$set.txt"
        install --require-hashes --requirement "requirements/$set.txt"
        cp "requirements/$set.txt" "$stamp"
    fi
done
if ! cmp --silent pyproject.toml .venv/.installed-self; then
    install --editable .
    cp pyproject.toml .venv/.installed-self
fi
