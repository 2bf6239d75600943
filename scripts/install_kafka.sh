#!/usr/bin/env bash
# Fetch Spark's part for Kafka and a Kafka broker from Maven Central, for tests of the pipeline
# `reorder`, and for `make bench-subscriptions`. Nothing else needs them; users of the pipeline get
# Spark's part by --packages.
# Usage: scripts/install_kafka.sh [FOLDER]; the folder is .venv/kafka by default.
set -euo pipefail
cd "$(dirname "$0")/.."

python=".venv/bin/python"
folder="${1:-.venv/kafka}"
sums="$PWD/requirements/kafka.sha256"
if [[ -d "$folder" ]] && (cd "$folder" && sha256sum --check --quiet "$sums") 2>/dev/null; then
    exit 0
fi
[[ $# -eq 0 ]] || python="$(dirname "$folder")/bin/python"
spark="$("$python" -c 'import pyspark; print(pyspark.__path__[0])' 2>/dev/null)" || {
    echo "pyspark is not installed, and what needs Kafka is left out: scripts/install.sh spark" >&2
    exit 1
}
command -v java >/dev/null || {
    echo "Java is not installed, and what needs Kafka is left out: scripts/install_java.sh" >&2
    exit 1
}
echo "fetching a Kafka broker and Spark's part for Kafka"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
cache="${XDG_CACHE_HOME:-$HOME/.cache}/dejaqueue-ivy" # the hashes are checked, wherever a file comes from
settings=()
[[ -z "${IVY_SETTINGS:-}" ]] || settings=(-settings "$IVY_SETTINGS")
for conf in spark server; do
    java -jar "$spark"/jars/ivy-*.jar -ivy requirements/kafka.xml -confs "$conf" -cache "$cache" \
        "${settings[@]}" -types jar bundle -retrieve "$scratch/kafka/$conf/[artifact]-[revision].[ext]" \
        >"$scratch/log" 2>&1 || {
        tail -n 25 "$scratch/log" >&2
        echo "Kafka could not be fetched, and what needs it is left out. Maven Central must be reachable;" >&2
        echo "IVY_SETTINGS names an ivysettings.xml where it is to be read from elsewhere." >&2
        exit 1
    }
done
(cd "$scratch/kafka" && sha256sum --check --quiet "$sums")
rm -rf "$folder"
mv "$scratch/kafka" "$folder"
