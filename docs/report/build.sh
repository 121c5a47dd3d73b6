#!/usr/bin/env bash
# Makes the report as build/report/report.html and report.pdf, with Debian's pandoc and chromium:
#   bash docs/report/build.sh [OUT]     (build/report)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${1:-build/report}
mkdir -p "$out"
python3 docs/report/figures.py --check
pandoc docs/report/report.md --standalone --self-contained --mathml --resource-path docs/report \
  --css docs/report/page.css --output "$out/report.html"
"${CHROMIUM:-chromium}" --headless --no-sandbox --disable-gpu --no-pdf-header-footer \
  --print-to-pdf="$out/report.pdf" "$(realpath "$out/report.html")" 2>"$out/chromium.log"
pages=$(grep -ac '/Type */Page\b' "$out/report.pdf")
echo "$out/report.pdf: $pages pages"
((pages <= 8)) || { echo "The report may have at most 8 pages." >&2 && exit 1; }
