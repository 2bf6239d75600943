#!/usr/bin/env bash
# Get Cassandra for tests: its library from Maven with what that needs, into a folder. Nothing else needs it.
set -euo pipefail
version="5.0.4"
folder="${DEJAQ_CASSANDRA_JARS:-$HOME/.cache/dejaq/cassandra}"
if [[ -e "$folder/cassandra-all-$version.jar" ]]; then
    exit 0
fi
for program in java mvn; do
    command -v "$program" >/dev/null || { echo "Cassandra is left out: $program is not installed" >&2; exit 1; }
done
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dejaq</groupId><artifactId>cassandra</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId><version>$version</version></dependency>
  </dependencies>
</project>
POM
echo "getting Cassandra $version"
mvn --quiet --batch-mode --file "$work/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/jars"
mkdir -p "$folder"
cp "$work"/jars/*.jar "$folder/"
