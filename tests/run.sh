#!/usr/bin/env bash
# Builds everything and runs every test:  tests/run.sh [PRESET]
# PRESET is one of CMakePresets.json, release unless given; JOBS the cores to use, all unless given.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}
build=build/$preset
log=$build/setup.log
mkdir -p "$build"

source cmake/setup.sh
need_packages "${build_packages[@]}" "${example_packages[@]}" "${test_packages[@]}"
need_cmake

cmake --preset "$preset" -D STRETTO_WERROR=ON -D STRETTO_TESTS=ON -D STRETTO_EXAMPLES=ON \
  -D STRETTO_BENCHMARKS=ON
cmake --build --preset "$preset" --parallel "$jobs"
status=0
ctest --preset "$preset" --parallel "$jobs" || status=$?
echo
bash tests/sizes.sh
awk -f tests/tally.awk "$build/Testing/Temporary/LastTest.log"
exit "$status"
