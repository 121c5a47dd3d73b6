#!/usr/bin/env bash
# Times clean builds without a compiler cache:  benchmarks/build_time.sh [FOLDER]
# FOLDER (default: build/time) is removed before and after. JOBS: the number of jobs (default: all cores).
# Prints a table in Markdown: build, seconds, size of the result.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-build/time}
jobs=${JOBS:-$(nproc)}
trap 'rm -rf "$folder"' EXIT

row() {  # NAME TARGET FILE OPTION...
  local name=$1 target=$2 file=$3 start
  shift 3
  rm -rf "$folder"
  start=$(date +%s)
  cmake --preset release -B "$folder" -D CMAKE_CXX_COMPILER_LAUNCHER= -D CMAKE_CUDA_COMPILER_LAUNCHER= "$@" >/dev/null
  cmake --build "$folder" --parallel "$jobs" --target "$target" >/dev/null
  echo "| $name | $(($(date +%s) - start)) | $(($(stat -L -c %s "$folder/$file") / 1000000)) MB |"
}

echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $jobs jobs, $(date -u +%F), commit $(git describe --always --dirty)"
echo
echo "| build | s | size |"
echo "| --- | ---: | ---: |"
library=(-D STRETTO_CUDA=OFF -D STRETTO_TESTS=OFF -D STRETTO_BENCHMARKS=OFF)
row "library" stretto_shared libstretto.so "${library[@]}" -D STRETTO_EXAMPLES=OFF
row "quickstart" train_chorales examples/train_chorales "${library[@]}"
row "\`tests/run.sh\`" all tests/stretto_tests -D STRETTO_CUDA=OFF -D STRETTO_BENCHMARKS=OFF \
  -D STRETTO_ALL_TESTS=OFF
