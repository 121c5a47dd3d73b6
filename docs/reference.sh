#!/usr/bin/env bash
# The API reference, HTML with search:  bash docs/reference.sh [--check] [OUT]     (build/reference)
# Needs doxygen. With --check a public member without a sentence, and a reference to nothing, is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
strict=NO
if [[ ${1:-} == --check ]]; then
  strict=FAIL_ON_WARNINGS
  shift
fi
out=${1:-build/reference}
mkdir -p "$out"
headers=$(sed -n 's/^#include "\(.*\.h\)"$/\1/p' stretto.h stretto_*.h | grep -v '^stretto' | tr '\n' ' ')
version=$(sed -n 's/^#define STRETTO_VERSION_[A-Z]* \([0-9]*\)$/\1/p' core/version.h | paste -sd .)
doxygen - <<EOF
@INCLUDE = docs/Doxyfile
INPUT = docs/reference_groups.h $headers
OUTPUT_DIRECTORY = $out
PROJECT_NUMBER = $version
WARN_AS_ERROR = $strict
EOF
for page in "$out"/group__*.html; do
  grep -q memitem "$page" || { echo "docs/reference.sh: the topic $page is empty" >&2; exit 1; }
done
