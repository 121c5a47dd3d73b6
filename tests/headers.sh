#!/usr/bin/env bash
# Checks that each header compiles by itself:  tests/headers.sh COMPILER [OPTION...] < LIST
# Skips headers that a source of the same name includes first: the library's build checks those.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

alone=()
while read -r header; do
  source=${header%.h}.cpp
  if [[ -f $source && $(grep -m 1 '^#include' "$source") == "#include \"$header\"" ]]; then continue; fi
  alone+=("$header")
done
echo "${#alone[@]} headers that no source of the same name includes first"
printf '%s\n' "${alone[@]}" |
  xargs -P "$(nproc)" -I{} "$@" -std=c++20 -I. -fsyntax-only -include {} -x c++ /dev/null

# The first error of an older standard says what is needed.
first=$("$@" -std=c++17 -I. -E -x c++ stretto.h 2>&1 >/dev/null | grep -m 1 'error:' || true)
[[ $first == *'Stretto needs C++20 or later: compile with -std=c++20'* ]] || { echo "$first"; exit 1; }
