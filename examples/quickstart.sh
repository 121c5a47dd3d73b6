#!/usr/bin/env bash
# From nothing to a first piece of music: installs what is needed, builds the example that learns
# Bach's chorales, and runs it. Arguments go to the example:  examples/quickstart.sh --help
# Run again it replaces what it made before, or with --resume FILE goes on.
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

echo "Building the example on $jobs cores (the log is $log)"
if ! { cmake --preset release -B "$build" -D STRETTO_CUDA=OFF \
       -D STRETTO_TESTS=OFF -D STRETTO_BENCHMARKS=OFF &&
       cmake --build "$build" --target train_chorales --parallel "$jobs"; } >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  fail "The build failed; the whole output is in $log"
fi

# Many small steps: what counting achieves is passed within a minute on slow or busy cores too.
settings=(--length 256 --batch 4)
if [[ " $* " != *" --steps"* ]]; then settings+=(--minutes 3); fi
echo "Training; everything it makes goes to $out"
"$build/examples/train_chorales" --out "$out" --overwrite "${settings[@]}" "$@"
echo
echo "Done. Look at it and listen to it in a browser:  file://$out/report.html"
echo "Your results are in $out:"
ls -1 "$out"
echo "Run it again, with other settings:  $build/examples/train_chorales --help"
