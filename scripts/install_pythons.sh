#!/usr/bin/env bash
# Make .venv/other/VERSION for each other Python that is found (3.11 or newer), with locked packages: replays are
# compared between them. Where there is no other, nothing is done. Usage: scripts/install_pythons.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# What replays need, out of requirements/dev.txt.
wanted="$(mktemp)"
trap 'rm -f "$wanted"' EXIT
names="$(sed -n 's/^\([a-z0-9_.-]*\)==.*/\1/p' requirements/run.txt) attrs hypothesis iniconfig pluggy pygments pytest sortedcontainers"
awk -v names="$names" 'BEGIN { split(names, list); for (n in list) kept[list[n]] = 1 }
    /^[a-z]/ { split($0, parts, "=="); take = parts[1] in kept } take' requirements/dev.txt >"$wanted"

own="$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
for version in 3.11 3.12 3.13 3.14; do
    [[ "$version" == "$own" ]] && continue
    place=".venv/other/$version"
    cmp --silent "$wanted" "$place/.installed" && continue
    for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
        if "$candidate" -c "import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" \
            >/dev/null 2>&1; then
            echo "making $place with $("$candidate" --version)"
            rm -rf "$place"
            "$candidate" -m venv "$place"
            pip=("$place/bin/python" -m pip --disable-pip-version-check --no-input install --quiet
                --root-user-action=ignore --no-deps --no-build-isolation --require-hashes --requirement)
            if "${pip[@]}" requirements/build.txt && "${pip[@]}" "$wanted"; then
                cp "$wanted" "$place/.installed"
            else
                echo "what replays need can't be installed for Python $version: left out"
            fi
            break
        fi
    done
done
