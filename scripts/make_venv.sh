#!/usr/bin/env bash
# Make .venv with a Python of 3.11 or newer, unless a usable one is there. Usage: scripts/make_venv.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."

is_usable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

if is_usable .venv/bin/python && .venv/bin/python -c 'import pip' 2>/dev/null; then
    exit 0
fi

python=""
for candidate in ${1:+"$1"} python3 python3.13 python3.12 python3.11 python; do
    if is_usable "$candidate"; then
        python="$candidate"
        break
    fi
done
if [[ -z "$python" ]]; then
    echo "DejaQ needs Python 3.11 or newer, and found none${1:+ (PYTHON=$1)}." >&2
    echo "On Debian or Ubuntu: apt-get install python3 python3-venv. Then run make again." >&2
    exit 1
fi
if ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
    version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    echo "$python (Python $version) cannot make a virtual environment: its venv or ensurepip is missing." >&2
    echo "On Debian or Ubuntu: apt-get install python3-venv (or python$version-venv). Then run make again." >&2
    exit 1
fi
echo "making .venv with $("$python" --version)"
rm -rf .venv
"$python" -m venv .venv
