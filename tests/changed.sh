#!/usr/bin/env bash
# Builds, then runs the test files that are affected by the changes in the working tree:
#   tests/changed.sh [COMMIT]
# Changed files are those that differ from COMMIT (default HEAD) and untracked files. A test file is
# affected if it or a header that it includes, directly or indirectly, changed; or if it includes the
# header of a source file for which that is true. Uses the build directory of tests/run.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/release
[[ -f $build/build.ninja ]] || { echo "There is no build yet; bash tests/run.sh creates one" >&2; exit 2; }
jobs=${JOBS:-$(nproc)}
known() { git ls-files; git ls-files --others --exclude-standard; }
mapfile -t changed < <({ git diff --name-only "${1:-HEAD}"; git ls-files --others --exclude-standard; } |
  grep -E '\.(h|cpp|cu|cuh)$' | sort -u)
((${#changed[@]} > 0)) || { echo "No source changed."; exit; }

# Every quoted #include as "includer included", resolved from the includer's directory or from the root.
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
        sibling = normal(folder text[i])
        to[i] = sibling in file || sibling in touched ? sibling : text[i]
        if (!(from[i] in own)) own[from[i]] = to[i]  # a source includes its own header first
      }
      do {
        more = 0
        for (i = 1; i <= NR; ++i) {
          if (to[i] in touched && !(from[i] in touched)) { touched[from[i]]; more = 1 }
          if (from[i] in touched && from[i] !~ /^tests\// && from[i] ~ /\.(cpp|cu)$/) own_touched[own[from[i]]]
          if (to[i] in own_touched && from[i] ~ /^tests\// && !(from[i] in touched)) { touched[from[i]]; more = 1 }
        }
      } while (more)
      for (path in touched)
        if (path ~ /^tests\/.*_test\.cpp$/) {
          sub(/.*\//, "", path)
          sub(/_test\.cpp$/, "", path)
          print path
        }
    }' | sort -u)
((${#names[@]} > 0)) || { echo "No test file includes a changed file; bash tests/run.sh runs all tests."; exit; }
echo "${#changed[@]} changed sources affect ${#names[@]} test files"
cmake --build "$build" --parallel "$jobs"
ctest --test-dir "$build" --output-on-failure --parallel "$jobs" -R "^($(IFS='|'; echo "${names[*]}"))\$"
