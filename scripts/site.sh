#!/usr/bin/env bash
# Make the documentation's site in build/site/html; a warning is an error.
# Usage: scripts/site.sh [--serve]; --serve shows it at http://127.0.0.1:8000 afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_site.sh
PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" .venv/bin/python scripts/generate_site.py
build/site/tools/bin/mkdocs build --clean >build/site/log 2>&1 || {
    cat build/site/log >&2
    exit 1
}
# Material's dialog has no name that a screen reader could say.
find build/site/html -name '*.html' -exec sed -i 's/data-md-component="search" role="dialog"/& aria-label="Search"/' {} +
# llms.txt lists pages as they were written.
(cd build/site/pages && find . -name '*.md' -exec cp --parents {} ../html/ \;)
echo "wrote build/site/html: $(find build/site/html -name '*.html' | wc -l) pages"
if [[ "${1:-}" == "--serve" ]]; then
    exec .venv/bin/python -m http.server --bind 127.0.0.1 --directory build/site/html 8000
fi
