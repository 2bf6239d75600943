#!/usr/bin/env bash
# Get ZooKeeper for tests: its library from Maven with what that needs, into a folder. Nothing else needs it.
set -euo pipefail
version="3.9.4"
folder="${DEJAQ_ZOOKEEPER_JARS:-$HOME/.cache/dejaq/zookeeper}"
if [[ -e "$folder/zookeeper-$version.jar" ]]; then
    exit 0
fi
for program in java mvn; do
    command -v "$program" >/dev/null || { echo "ZooKeeper is left out: $program is not installed" >&2; exit 1; }
done
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dejaq</groupId><artifactId>zookeeper</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>2.0.13</version></dependency>
    <dependency><groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId><version>4.1.12.1</version></dependency>
    <dependency><groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId><version>1.1.10.5</version></dependency>
  </dependencies>
</project>
POM
echo "getting ZooKeeper $version"
mvn --quiet --batch-mode --file "$work/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/jars"
mkdir -p "$folder"
cp "$work"/jars/*.jar "$folder/"
