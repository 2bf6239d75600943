#!/usr/bin/env bash
# Ask the package index for known flaws of what a release brings. Where no index answers, say so: exit status 3.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_audit.sh
status=0
said="$(.venv/audit/bin/pip-audit --vulnerability-service pypi --progress-spinner off --timeout 15 \
    --path "$(echo .venv/release/lib/python3*/site-packages)" 2>&1)" || status=$?
echo "$said"
# pip-audit ends well, too, where the index knows nothing of the packages it was asked about.
unasked="$(grep -c "could not be audited" <<<"$said" || true)"
if [ "$unasked" -gt 0 ]; then
    echo "audit: of $unasked packages nothing is known to the index that answers here: they were not checked" >&2
    exit 3
fi
if [ "$status" -ne 0 ] && grep -qiE "connection|timed out|resolve|HTTPError|ServiceError" <<<"$said"; then
    echo "audit: no index answered, so nothing was checked" >&2
    exit 3
fi
exit "$status"
