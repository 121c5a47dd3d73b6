#!/usr/bin/env bash
# From a fresh checkout to a first piece of music: installs the required packages, builds
# train_chorales, which learns Bach's chorales, and runs it. Arguments are passed to the program:
# examples/quickstart.sh --help. Run again, it replaces its results; with --resume FILE it
# resumes a training.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
build=$root/build/quickstart
out=$root/out/chorales
log=$build/setup.log
mkdir -p "$build" "$out"

source cmake/setup.sh
need_packages "${build_packages[@]}" "${example_packages[@]}"
need_cmake

echo "Building the example on $jobs cores (log: $log)"
if ! { cmake --preset release -B "$build" -D STRETTO_CUDA=OFF \
       -D STRETTO_TESTS=OFF -D STRETTO_BENCHMARKS=OFF &&
       cmake --build "$build" --target train_chorales --parallel "$jobs"; } >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  fail "The build failed; the full output is in $log"
fi

# Many small steps: the n-gram baseline is beaten within a minute, even on slow or busy cores.
settings=(--length 256 --batch 4)
if [[ " $* " != *" --steps"* ]]; then settings+=(--minutes 3); fi
echo "Training; all results go to $out"
"$build/examples/train_chorales" --out "$out" --overwrite "${settings[@]}" "$@"
echo
echo "Done. Open the results in a browser:  file://$out/report.html"
echo "Your results are in $out:"
ls -1 "$out"
echo "To run it again with other settings:  $build/examples/train_chorales --help"
