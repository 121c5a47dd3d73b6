#!/usr/bin/env bash
# Builds, and runs the tests that the working tree's change touches:  tests/changed.sh [COMMIT]
# Changed is what differs from COMMIT, HEAD unless given, and what git does not know yet. A test file is
# touched when it, or a header that it includes at any depth, changed; or when it includes the header of a
# source for which that is so. Uses the build of tests/run.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/release
[[ -f $build/build.ninja ]] || { echo "There is no build yet: bash tests/run.sh makes one" >&2; exit 2; }
jobs=${JOBS:-$(nproc)}
known() { git ls-files; git ls-files --others --exclude-standard; }
mapfile -t changed < <({ git diff --name-only "${1:-HEAD}"; git ls-files --others --exclude-standard; } |
  grep -E '\.(h|cpp|cu|cuh)$' | sort -u)
((${#changed[@]} > 0)) || { echo "No source changed."; exit; }

# Every #include of the repository's own as "file included", seen from the includer's folder or from the root.
mapfile -t names < <(known | grep -E '\.(h|cpp|cu|cuh)$' | sort -u | xargs grep -H '^#include "' /dev/null |
  sed -E 's/^([^:]*):#include "([^"]*)".*/\1 \2/' |
  awk -v changed="${changed[*]}" '
    function normal(path) {
      while (match(path, /[^\/]+\/\.\.\//)) path = substr(path, 1, RSTART - 1) substr(path, RSTART + RLENGTH)
      return path
    }
    { from[NR] = $1; text[NR] = $2; file[$1] }
    END {
      count = split(changed, list, " ")
      for (i = 1; i <= count; ++i) touched[list[i]]
      for (i = 1; i <= NR; ++i) {
        folder = from[i]
        if (!sub(/\/[^\/]*$/, "/", folder)) folder = ""
        beside = normal(folder text[i])
        to[i] = beside in file || beside in touched ? beside : text[i]
        if (!(from[i] in own)) own[from[i]] = to[i]  # the header of a source is what it includes first
      }
      do {
        more = 0
        for (i = 1; i <= NR; ++i) {
          if (to[i] in touched && !(from[i] in touched)) { touched[from[i]]; more = 1 }
          if (from[i] in touched && from[i] !~ /^tests\// && from[i] ~ /\.(cpp|cu)$/) near[own[from[i]]]
          if (to[i] in near && from[i] ~ /^tests\// && !(from[i] in touched)) { touched[from[i]]; more = 1 }
        }
      } while (more)
      for (path in touched)
        if (path ~ /^tests\/.*_test\.cpp$/) {
          sub(/.*\//, "", path)
          sub(/_test\.cpp$/, "", path)
          print path
        }
    }' | sort -u)
((${#names[@]} > 0)) || { echo "No test file includes what changed; bash tests/run.sh runs all."; exit; }
echo "${#changed[@]} changed sources touch ${#names[@]} test files"
cmake --build "$build" --parallel "$jobs"
ctest --test-dir "$build" --output-on-failure --parallel "$jobs" -R "^($(IFS='|'; echo "${names[*]}"))\$"
