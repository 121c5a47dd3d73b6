#!/usr/bin/env bash
# Builds example programs from a fresh checkout, for the CPU:
#     bash examples/build.sh PROGRAM...
# installs the required packages and builds build/quickstart/examples/PROGRAM.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$PWD/build/quickstart
log=$build/setup.log
mkdir -p "$build"

source cmake/setup.sh
if (($# == 0)); then fail "usage: bash examples/build.sh PROGRAM..."; fi
need_packages "${build_packages[@]}" "${example_packages[@]}"
need_cmake

echo "Building $* on $jobs cores (log: $log)"
if ! { cmake --preset release -B "$build" -D STRETTO_CUDA=OFF \
       -D STRETTO_TESTS=OFF -D STRETTO_BENCHMARKS=OFF &&
       cmake --build "$build" --target "$@" --parallel "$jobs"; } >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  fail "The build failed; the full output is in $log"
fi
