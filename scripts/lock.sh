#!/usr/bin/env bash
# Write requirements/*.txt: exact versions with hashes, for Python 3.11 to 3.13, without an index.
# Usage: scripts/lock.sh [--upgrade]
set -euo pipefail
cd "$(dirname "$0")/.."

uv="${UV:-uv}"
if ! command -v "$uv" >/dev/null; then
    echo "lock.sh: uv is needed to lock versions: python3 -m pip install uv (or UV=/path/to/uv)" >&2
    exit 1
fi
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

compile() { # compile OUTPUT ARGUMENTS...
    local output="$1"
    shift
    "$uv" pip compile --quiet --universal --python-version 3.11 \
        --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
        --output-file "$output" "$@"
}

if [[ "${1:-}" != "--upgrade" ]]; then
    # Keep what is locked, as far as it still fits.
    cat requirements/{build,run,dev,bench,spark,connect,cluster,image,audit,site}.txt 2>/dev/null |
        sed -n 's/^\([A-Za-z0-9_.-]*==[^ ;\\]*\).*/\1/p' | sort -u >"$scratch/locked.txt" || true
fi

# One resolution over everything, so that no two files disagree; then one file per purpose.
touch "$scratch/locked.txt"
cp "$scratch/locked.txt" "$scratch/all.txt"
compile "$scratch/all.txt" pyproject.toml requirements/build.in requirements/audit.in requirements/site.in --all-extras --group dev --group bench
compile requirements/build.txt requirements/build.in \
    --constraints "$scratch/all.txt" --generate-hashes --no-annotate
compile requirements/run.txt pyproject.toml --extra demo --extra http --extra doq --excludes requirements/run.excludes \
    --constraints "$scratch/all.txt" --generate-hashes --no-annotate
compile requirements/dev.txt pyproject.toml --extra demo --extra http --extra doq --extra opentelemetry --group dev \
    --constraints "$scratch/all.txt" --generate-hashes --no-annotate
compile requirements/bench.txt pyproject.toml --group bench \
    --constraints "$scratch/all.txt" --generate-hashes --no-annotate
compile requirements/spark.txt pyproject.toml --extra spark \
    --constraints "$scratch/all.txt" --generate-hashes --no-annotate
compile requirements/connect.txt pyproject.toml --extra connect \
    --constraints "$scratch/all.txt" --generate-hashes --no-annotate
compile requirements/cluster.txt pyproject.toml --extra backup --extra dns --extra etcd --extra zookeeper --extra oidc --extra encryption --extra nats --extra redis --extra cassandra --extra postgresql --extra mysql \
    --constraints "$scratch/all.txt" --generate-hashes --no-annotate
compile requirements/image.txt pyproject.toml --extra backup --extra cluster --extra encryption --extra oidc --extra dns --extra etcd --extra zookeeper \
    --constraints "$scratch/all.txt" --generate-hashes --no-annotate
for peers in peers arq moto; do # by themselves: they are never installed beside the others, nor beside each other
    touch "$scratch/$peers.txt"
    if [[ "${1:-}" != "--upgrade" && -e "requirements/$peers.txt" ]]; then
        sed -n 's/^\([A-Za-z0-9_.-]*==[^ ;\\]*\).*/\1/p' "requirements/$peers.txt" >"$scratch/$peers.txt"
    fi
    compile "requirements/$peers.txt" "requirements/$peers.in" \
        --constraints "$scratch/$peers.txt" --generate-hashes --no-annotate
done
compile requirements/audit.txt requirements/audit.in --constraints "$scratch/all.txt" --generate-hashes --no-annotate
compile requirements/site.txt requirements/site.in --constraints "$scratch/all.txt" --generate-hashes --no-annotate
echo "locked: $(grep -h -c -E '^[A-Za-z0-9]' requirements/*.txt | paste -sd' ') packages (audit, bench, build, dev, run, spark)"
