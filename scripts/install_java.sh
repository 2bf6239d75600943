#!/usr/bin/env bash
# Install Java 17 for Spark, where root and apt-get can. Only Spark's part of DejaQ needs it.
set -euo pipefail

java_version() { # the major version of the java that is there, 0 if there is none
    local line
    line="$(java -version 2>&1 | head -n 1)" || { echo 0; return; }
    [[ "$line" =~ \"([0-9]+) ]] && echo "${BASH_REMATCH[1]}" || echo 0
}

if command -v java >/dev/null && [[ "$(java_version)" -ge 17 ]]; then
    exit 0
fi
if ! command -v apt-get >/dev/null || [[ "$(id -u)" != 0 ]]; then
    echo "Java 17 or newer is not installed, and what needs Spark is left out." >&2
    echo "Root can install it: apt-get install openjdk-17-jre-headless, or as your system does it." >&2
    echo "Or unpack any Java of version 17 or newer and put its bin folder into PATH." >&2
    exit 1
fi
echo "installing openjdk-17-jre-headless"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null
