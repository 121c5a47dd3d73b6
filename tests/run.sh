#!/usr/bin/env bash
# Builds and runs the tests:
#   tests/run.sh              the tests of the library on this machine, in minutes
#   tests/run.sh --all        everything: also the CUDA kernels without a GPU, ThreadSanitizer, packages,
#                             two hosts, pages in a browser, long fault injection
#   tests/run.sh FOLDER...    only these directories of tests/, e.g. `tests/run.sh nn ops`
# JOBS: the number of cores to use (default all). tests/full.cmake lists what only --all runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
all=OFF folders=()
for word; do
  if [[ $word == --all ]]; then
    all=ON
  elif [[ -d tests/${word%/} ]]; then
    folders+=("${word%/}")
  else
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
  fi
done
if [[ $all == ON && ${#folders[@]} -gt 0 ]]; then
  echo "tests/run.sh: --all and folders exclude each other" >&2
  exit 2
fi

build=build/release
if [[ $all == ON ]]; then build=build/all; fi
log=$build/setup.log
mkdir -p "$build"
source cmake/setup.sh
need_packages "${build_packages[@]}" "${example_packages[@]}" "${test_packages[@]}"
if [[ $all == ON ]]; then need_packages "${full_test_packages[@]}"; fi
need_cmake

# CUDA kernels are tested on a GPU or, slowly, by the PTX interpreter.
cuda=OFF
if [[ $all == ON || -e /dev/nvidia0 ]]; then cuda=AUTO; fi
cmake --preset release -B "$build" -D STRETTO_WERROR=ON -D STRETTO_TESTS=ON -D STRETTO_EXAMPLES=ON \
  -D STRETTO_CUDA=$cuda -D STRETTO_ALL_TESTS=$all -D STRETTO_BENCHMARKS=$all -D STRETTO_PYTHON_PACKAGE=$all \
  -D STRETTO_TEST_FOLDERS="$(IFS=';'; echo "${folders[*]}")"
cmake --build "$build" --parallel "$jobs"
choice=()
if [[ $all == OFF || -n ${WITHOUT_FULL:-} ]]; then choice=(-LE '^full$'); fi  # WITHOUT_FULL: of .ci/run
if ((${#folders[@]} > 0)); then choice=(-L "^($(IFS='|'; echo "${folders[*]}"))\$"); fi
status=0
ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$jobs" "${choice[@]}" || status=$?
echo
awk -f tests/tally.awk "$build/Testing/Temporary/LastTest.log"
if [[ $all == OFF && ${#folders[@]} == 0 ]]; then
  left=$(ctest --test-dir "$build" -N -L '^full$' | sed -n 's/^Total Tests: //p')
  echo "Not run: $left slow entries (ctest --test-dir $build -N -L full lists them), ThreadSanitizer$(
    [[ $cuda == OFF ]] && echo ', the CUDA kernels'). bash tests/run.sh --all runs everything."
fi
exit "$status"
