#!/usr/bin/env bash
# Prints the number of lines of C++ and CUDA in each directory and its subdirectories:  tests/sizes.sh
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

count() {  # FOLDER FIND-OPTION...
  find "$@" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -exec cat {} + | wc -l
}

for folder in core autograd ops cuda nn music pretrained examples benchmarks python tests; do
  sizes=$(count "$folder" -maxdepth 1)
  for subfolder in "$folder"/*/; do
    if [[ -d $subfolder && $folder != tests ]]; then sizes+=", $(basename "$subfolder") $(count "$subfolder")"; fi
  done
  [[ $sizes == *,* ]] || sizes=
  printf '%-10s %6d lines%s\n' "$folder" "$(count "$folder")" "${sizes:+: $sizes}"
done
