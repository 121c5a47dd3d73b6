#!/usr/bin/env bash
# Prints how many lines of C++ and CUDA each folder has, and each room in it:  tests/sizes.sh
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

count() {  # FOLDER FIND-OPTION...
  find "$@" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -exec cat {} + | wc -l
}

for folder in core autograd ops cuda nn examples benchmarks tests; do
  rooms=$(count "$folder" -maxdepth 1)
  for room in "$folder"/*/; do
    if [[ -d $room && $folder != tests ]]; then rooms+=", $(basename "$room") $(count "$room")"; fi
  done
  [[ $rooms == *,* ]] || rooms=
  printf '%-10s %6d lines%s\n' "$folder" "$(count "$folder")" "${rooms:+: $rooms}"
done
