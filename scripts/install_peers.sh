#!/usr/bin/env bash
# Install what `make bench QUESTION=workers`, `peers` and `sqs` compare with: task queues and clients for Python and moto into
# bench/out, apart from .venv and, where they want different packages, from each other; BullMQ; ElasticMQ; and RabbitMQ.
# Nothing else needs them.
set -euo pipefail
cd "$(dirname "$0")/.."

for set in peers arq moto; do
    folder="bench/out/$set"
    if ! cmp --silent "requirements/$set.txt" "$folder/.installed"; then
        echo "installing requirements/$set.txt into $folder"
        rm -rf "$folder"
        .venv/bin/python -m pip --disable-pip-version-check --no-input install --quiet --root-user-action=ignore \
            --no-deps --target "$folder" --require-hashes --requirement "requirements/$set.txt"
        cp "requirements/$set.txt" "$folder/.installed"
    fi
done
if ! cmp --silent bench/clients/node/package-lock.json bench/out/bullmq/.installed; then
    if command -v npm >/dev/null; then
        echo "installing BullMQ into bench/out/bullmq"
        rm -rf bench/out/bullmq
        mkdir -p bench/out/bullmq
        cp bench/clients/node/package.json bench/clients/node/package-lock.json bench/out/bullmq/
        # `ci` takes what is locked and checks its hashes; no package runs a script of its own.
        npm --prefix bench/out/bullmq ci --silent --no-audit --no-fund --ignore-scripts
        cp bench/clients/node/package-lock.json bench/out/bullmq/.installed
    else
        echo "not installed, and left out: bullmq (it needs Node and npm)" >&2
    fi
fi
sums="$PWD/requirements/elasticmq.sha256"
if ! (cd bench/out/elasticmq && sha256sum --check --quiet "$sums") 2>/dev/null; then
    if command -v mvn >/dev/null && command -v java >/dev/null; then
        echo "fetching ElasticMQ into bench/out/elasticmq"
        rm -rf bench/out/elasticmq
        mvn --batch-mode --quiet --file requirements/elasticmq.xml -DoutputDirectory="$PWD/bench/out/elasticmq" \
            org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies
        # Whatever a repository answers, these are the files that were looked at.
        (cd bench/out/elasticmq && sha256sum --check --quiet "$sums")
    else
        echo "not installed, and left out: elasticmq (it needs Java and Maven)" >&2
    fi
fi
if command -v rabbitmq-server >/dev/null || [[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ]]; then
    exit 0
fi
if ! command -v apt-get >/dev/null || [[ "$(id -u)" != 0 ]]; then
    echo "not installed, and left out: rabbitmq-server" >&2
    exit 1
fi
echo "installing rabbitmq-server"
export DEBIAN_FRONTEND=noninteractive
# It is started by who needs it, on a port of its own: keep the package from starting it.
policy=/usr/sbin/policy-rc.d
if [[ ! -e "$policy" ]]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
apt-get install -y -qq --no-install-recommends rabbitmq-server >/dev/null
