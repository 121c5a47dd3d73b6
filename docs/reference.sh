#!/usr/bin/env bash
# The API reference, HTML with search:  bash docs/reference.sh [OUT]     (build/reference)
# Needs doxygen. Ends with 1 where a public member has no sentence, or a reference leads nowhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-build/reference}
mkdir -p "$out"
headers=$(sed -n 's/^#include "\(.*\)"$/\1/p' stretto.h | tr '\n' ' ')
version=$(sed -n 's/^project(stretto VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
doxygen - <<EOF
@INCLUDE = docs/Doxyfile
INPUT = docs/reference_groups.h $headers
OUTPUT_DIRECTORY = $out
PROJECT_NUMBER = $version
EOF
