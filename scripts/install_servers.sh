#!/usr/bin/env bash
# Install the servers that tests start (PostgreSQL, MariaDB, etcd) and that benchmarks compare with (Redis,
# beanstalkd), and the browser that tests start (Chromium). Nothing else needs them.
set -euo pipefail

missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
command -v beanstalkd >/dev/null || missing+=(beanstalkd)
compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null || command -v postgres >/dev/null || missing+=(postgresql)
command -v mariadbd >/dev/null || [[ -x /usr/sbin/mariadbd ]] || missing+=(mariadb-server-core mariadb-client-core)
command -v etcd >/dev/null || missing+=(etcd-server)
# Not a server: the disk that loses what was not synced (tests/crash/lossy_disk.py) is mounted by it.
command -v fusermount3 >/dev/null || missing+=(fuse3)
# Nor this: the browser in which a web page attacks a broker (tests/hostile), and which shows the console (tests/console).
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    missing+=(chromium)
# Nor these: networks that fail (tests/chaos), and clocks that jump. They are of use to root only.
if [[ "$(id -u)" == 0 ]]; then
    command -v ip >/dev/null || [[ -x /usr/sbin/ip ]] || missing+=(iproute2)
    command -v nft >/dev/null || [[ -x /usr/sbin/nft ]] || missing+=(nftables)
    compgen -G "/usr/lib/*/faketime/libfaketimeMT.so.1" >/dev/null || missing+=(libfaketime)
fi
if [[ ${#missing[@]} -eq 0 ]]; then
    exit 0
fi
if ! command -v apt-get >/dev/null || [[ "$(id -u)" != 0 ]]; then
    echo "not installed, and left out: ${missing[*]}" >&2
    echo "They can be installed by root with apt-get, or by you as your system does it." >&2
    exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# Servers are started by who needs them, on ports of their own: keep the package from starting any.
policy=/usr/sbin/policy-rc.d
if [[ ! -e "$policy" ]]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
