#!/usr/bin/env bash
# Packs BUILD as for a machine with a GPU, which checks the archive's size, unpacks it and runs stages 1
# and 2 of benchmarks/gpu/run.sh on the interpreter, a few steps of each:  rehearsal.sh BUILD
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../.." && pwd)
build=$(cd "$1" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }

BUILD=$build bash "$root/benchmarks/gpu/pack.sh" "$folder/archive.tar.gz"
tar -C "$folder" -xf "$folder/archive.tar.gz"
mv "$folder/stretto-gpu" "$folder/bundle"
export LD_LIBRARY_PATH=$build/ptx PTX_ORDER=random STRETTO_NUM_THREADS=1 JOBS=2
export SELECT='^(exact_)?(cuda_test|optim_kernels_test|runtime_test)$|^conformance_f64$|^faults$'
for stage in 1 2; do
  bash "$folder/bundle/run.sh" "$stage" "$folder/out" || fail "stage $stage did not pass"
done
for step in cuda_test optim_kernels_test conformance_f64; do
  grep -q "^| $step | passed |" "$folder/out/1.md" || fail "stage 1 did not run $step"
done
for step in exact_cuda_test exact_runtime_test faults; do
  grep -q "^| $step | passed |" "$folder/out/2.md" || fail "stage 2 did not run $step"
done
for tool in nvidia-smi compute-sanitizer; do
  command -v "$tool" >/dev/null || [[ -e /usr/local/cuda/bin/$tool ]] ||
    grep -q "^- $tool: not found, left out" "$folder/out/2.md" || fail "$tool is not named as missing"
done

# A failing stage is reported and does not affect the others.
printf '#!/bin/sh\nkill -SEGV $$\n' >"$folder/crashes" && chmod +x "$folder/crashes"
cp "$folder/crashes" "$folder/bundle/conformance"
SELECT='^(conformance_f64|cuda_test)$' bash "$folder/bundle/run.sh" 1 "$folder/again" &&
  fail "a crash counts as passed"
grep -q '^| conformance_f64 | \*\*crash\*\*, signal 11 |' "$folder/again/1.md" || fail "the crash is not reported"
grep -q '^| cuda_test | passed |' "$folder/again/1.md" || fail "the crash affects another step"
