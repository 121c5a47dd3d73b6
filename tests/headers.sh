#!/usr/bin/env bash
# Does each header compile by itself?  tests/headers.sh COMPILER [OPTION...] < LIST
# What a source of the same name includes first, the library's build has compiled so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

alone=()
while read -r header; do
  source=${header%.h}.cpp
  if [[ -f $source && $(grep -m 1 '^#include' "$source") == "#include \"$header\"" ]]; then continue; fi
  alone+=("$header")
done
echo "${#alone[@]} headers that no source of their name includes first"
printf '%s\n' "${alone[@]}" |
  xargs -P "$(nproc)" -I{} "$@" -std=c++20 -I. -fsyntax-only -include {} -x c++ /dev/null
