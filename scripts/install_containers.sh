#!/usr/bin/env bash
# Install what makes and runs the image from Debian's packages: mmdebstrap, buildah, podman, crun. Nothing else needs them.
set -euo pipefail

missing=()
for program in mmdebstrap buildah podman crun; do
    command -v "$program" >/dev/null || missing+=("$program")
done
if [[ ${#missing[@]} -eq 0 ]]; then
    exit 0
fi
if ! command -v apt-get >/dev/null || [[ "$(id -u)" != 0 ]]; then
    echo "not installed, and left out: ${missing[*]}" >&2
    exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
