#!/usr/bin/env bash
# Make the image of a checkout without a registry: Debian's packages by mmdebstrap, the locked ones of Python by pip, and
# the Dockerfile by buildah. Usage: scripts/image.sh [TAG | --base]; --base makes no more than Debian's part.
# What was fetched is kept in build/image; delete that to have newer packages of Debian. The same commit, locks and
# packages make the same layers. Status 3: it cannot be made here, and why.
set -euo pipefail
cd "$(dirname "$0")/.."

tag="${1:-localhost/dejaq}"
folder=build/image
python=.venv/bin/python
lacking() {
    echo "image.sh: $*" >&2
    exit 3
}
for program in mmdebstrap buildah; do
    command -v "$program" >/dev/null || lacking "$program is not installed (Debian: mmdebstrap, buildah, crun)"
done
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
# Neither a network nor control groups are needed, so the plainest way does: a change of the root.
export BUILDAH_ISOLATION="${BUILDAH_ISOLATION:-chroot}"
epoch="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}"

# The wheels that pip takes here are those of this Python, so the image has the Debian that has it too.
version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
case "$version" in
3.11) suite=bookworm ;;
3.13) suite=trixie ;;
*) lacking "no Debian has Python $version: make .venv with 3.11 or 3.13" ;;
esac

# --- Debian's packages: what is essential, and Python; no apt, pages, languages or tests ---------------------------

base="$folder/$suite.tar"
if [[ ! -e "$base" ]]; then
    echo "getting Debian's packages ($suite)"
    sources=()
    if grep -qs "^VERSION_CODENAME=$suite\$" /etc/os-release; then
        for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.{list,sources}; do
            [[ -s "$file" ]] && sources+=("$file") # where this machine has its packages from
        done
    fi
    SOURCE_DATE_EPOCH="$epoch" mmdebstrap --quiet --variant=essential --include=python3,libstdc++6,ca-certificates,tzdata \
        --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/lintian/*' \
        --customize-hook='cd "$1" && rm -rf etc/apt/sources.list* usr/share/i18n \
            usr/lib/python3*/{test,idlelib,lib2to3,turtledemo,pydoc_data}' \
        "$suite" "$folder/draft.tar" "${sources[@]}" || lacking "Debian's packages cannot be had or unpacked here"
    mv "$folder/draft.tar" "$base"
fi

# --- Python's ------------------------------------------------------------------------------------------------------

wheels="$folder/wheels-$version"
stamp="$wheels/.fetched"
if ! cat requirements/{build,image}.txt | cmp --silent - "$stamp"; then
    echo "getting requirements/image.txt"
    rm -rf "$wheels"
    "$python" -m pip --disable-pip-version-check --no-input download --quiet --no-deps --only-binary :all: \
        --require-hashes --dest "$wheels" --requirement requirements/build.txt --requirement requirements/image.txt ||
        lacking "the locked packages cannot be had here"
    cp -r "$("$python" -c 'import pip; print(pip.__path__[0])')" "$wheels/pip"
    cat requirements/{build,image}.txt >"$stamp"
fi

# --- the image -----------------------------------------------------------------------------------------------------

digest="$(sha256sum "$base" | cut -c 1-12)"
if ! buildah inspect --type image "localhost/dejaq-base:$digest" >/dev/null 2>&1; then
    container="$(buildah from scratch)" || lacking "buildah cannot store images here"
    buildah add --quiet "$container" "$base" / >/dev/null
    buildah run --network=none "$container" -- /usr/bin/true || lacking "containers cannot be run here"
    buildah commit --quiet --rm --timestamp "$epoch" "$container" "localhost/dejaq-base:$digest" >/dev/null
fi
if [[ "$tag" == --base ]]; then
    echo "localhost/dejaq-base:$digest"
    exit
fi
# Docker's format has health checks; the other one lacks them.
buildah build --quiet --format docker --pull-never --network=none --timestamp "$epoch" \
    --build-arg BASE="localhost/dejaq-base:$digest" --build-arg PIP="python3 /wheels-in/pip" \
    --build-arg PIP_NO_INDEX=1 --build-arg PIP_FIND_LINKS=/wheels-in --volume "$PWD/$wheels:/wheels-in:ro" \
    --tag "$tag" . >/dev/null
echo "$tag $(buildah inspect --type image --format '{{.FromImageID}}' "$tag")"
