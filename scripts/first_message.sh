#!/usr/bin/env bash
# How long it takes from an empty Debian, which has Python and no more, to a message that is delivered: an environment,
# `pip install`, `dejaq serve`, and a program that sends and takes. Usage: scripts/first_message.sh [--index]
# Packages are files that are here already, as those of scripts/image.sh; with --index pip asks the index that this
# machine's pip asks.
set -euo pipefail
cd "$(dirname "$0")/.."

base="$(scripts/image.sh --base | tail -1)"
export BUILDAH_ISOLATION="${BUILDAH_ISOLATION:-chroot}"
version="$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
work="$(mktemp -d)"
container="$(buildah from "$base")"
trap 'buildah rm "$container" >/dev/null; rm -rf "$work"' EXIT
cp -r src README.md CHANGELOG.md SECURITY.md LICENSE pyproject.toml hatch_build.py "$work"
(cd "$work" && "$OLDPWD/.venv/bin/python" -m hatchling build -t wheel -d out >/dev/null 2>&1)

how=(--network none --env PIP_NO_INDEX=1 --env PIP_FIND_LINKS=/wheels-in)
if [[ "${1:-}" == --index ]]; then
    how=(--network host --volume /etc/ssl/certs:/etc/ssl/certs:ro)
    while IFS='=' read -r name value; do
        how+=(--env "$name=$value")
    done < <(env | grep -E '^(PIP_|(http|https|no)_proxy=)' || true)
    for file in /etc/pip.conf; do
        [[ -e "$file" ]] && how+=(--volume "$file:$file:ro")
    done
fi
cat >"$work/first.sh" <<'SCRIPT'
set -euo pipefail
cd /root
now() { date +%s.%N; }
step() { python3 -c 'import sys; print("%-40s %5.1f s" % (sys.argv[1], float(sys.argv[3]) - float(sys.argv[2])))' "$@"; }
began="$(now)"
python3 -m venv --without-pip queue-env
python3 /wheels-in/pip --python queue-env/bin/python install --quiet --root-user-action=ignore /checkout/out/*.whl
installed="$(now)"
step "pip install dejaqueue" "$began" "$installed"
# Any free port: other brokers may run beside.
queue-env/bin/dejaq serve --data ./queue --port 0 --json 2>serve.log >serve.out &
for _ in {1..600}; do
    [[ -s serve.out ]] && break
    sleep 0.1
done
queue-env/bin/python - <<'PROGRAM'
import json

import dejaqueue

with dejaqueue.Client(json.load(open("serve.out"))["url"]) as client:
    client.create_topic("reminders")
    client.send("reminders", "hello", delay=0.1)
    for message in client.consume("reminders", max_messages=1):
        print(message.payload.decode(), f"{message.lateness_us / 1000:.1f} ms late")
        message.ack()
PROGRAM
delivered="$(now)"
step "two commands, to the message" "$installed" "$delivered"
step "from an empty Debian" "$began" "$delivered"
kill %1
wait %1
SCRIPT
buildah run "${how[@]}" --volume "$PWD/build/image/wheels-$version:/wheels-in:ro" --volume "$work:/checkout:ro" \
    "$container" -- /bin/bash /checkout/first.sh
