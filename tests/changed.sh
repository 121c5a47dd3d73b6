#!/usr/bin/env bash
# Builds, and runs the tests that the working tree's change touches:  tests/changed.sh [COMMIT]
# Changed is what differs from COMMIT, HEAD unless given, and what git does not know yet. A test file is
# touched when it, or a header that it includes at any depth, changed; or when it includes the header of
# a source that changed. Uses the build of tests/run.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/release
[[ -f $build/build.ninja ]] || { echo "There is no build yet: bash tests/run.sh makes one" >&2; exit 2; }
jobs=${JOBS:-$(nproc)}
cmake --build "$build" --parallel "$jobs"

mapfile -t changed < <({ git diff --name-only "${1:-HEAD}"; git ls-files --others --exclude-standard; } |
  grep -E '\.(h|cpp|cu|cuh)$' | sort -u)
((${#changed[@]} > 0)) || { echo "No source changed."; exit; }
patterns=$(mktemp)
trap 'rm -f "$patterns"' EXIT
for file in "${changed[@]}"; do
  case $file in
    *_test.cpp | *.h | *.cuh) echo "$PWD/$file" ;;
    *) echo "$PWD/${file%.*}.h" ;;
  esac
done >"$patterns"
# Each object of stretto_tests with the files that it was compiled from.
mapfile -t names < <(ninja -C "$build" -t deps 2>/dev/null | awk -v list="$patterns" -v root="$PWD" '
  BEGIN { while ((getline line < list) > 0) wanted[line] = 1 }
  /^[^ ].*: #deps/ { object = $1; sub(/:$/, "", object); next }
  object ~ /stretto_tests\.dir\/.*_test\.cpp\.o$/ && NF == 1 {
    file = $1
    while (file ~ /^\.\.\//) sub(/^\.\.\//, "", file)
    if (file !~ /^\//) file = root "/" file
    if (file in wanted && !(object in told)) {
      told[object] = 1
      name = object
      sub(/.*\//, "", name); sub(/_test\.cpp\.o$/, "", name)
      print name
    }
  }' | sort -u)
((${#names[@]} > 0)) || { echo "No test file includes what changed; bash tests/run.sh runs all."; exit; }
echo "${#changed[@]} changed sources touch ${#names[@]} test files"
ctest --test-dir "$build" --output-on-failure --parallel "$jobs" -R "^($(IFS='|'; echo "${names[*]}"))\$"
