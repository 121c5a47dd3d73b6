#!/usr/bin/env bash
# Times a training step in Stretto and in PyTorch, alternately, and prints the ratio of the medians.
#   STRETTO_PYTHON=/path/to/venv/bin/python benchmarks/train_step.sh [BUILD] [options of both...]
# BUILD is a release build with benchmarks (default: build/release). Options, such as --length 1024
# or --attention absolute, are passed to both programs. ROUNDS is the number of alternations (default
# 5), PROGRAM the benchmark: train_step (default) or linear_attention.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
if [ $# -gt 0 ] && [ -d "$1" ]; then build=$1; shift; fi
python=${STRETTO_PYTHON:-python3}
program=${PROGRAM:-train_step}
peer=$root/benchmarks/$program.py
[ -f "$peer" ] || peer=$root/benchmarks/${program}_torch.py
"$python" -c 'import torch' 2>/dev/null || {
  echo "PyTorch is not installed for $python; set STRETTO_PYTHON to a Python that has it" >&2; exit 2; }
# PyTorch is fastest next to other programs with these: no spinning, freed memory is reused.
export OMP_WAIT_POLICY=passive MALLOC_MMAP_THRESHOLD_=8589934592
export MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456
stretto_ms=() pytorch_ms=()
median() { printf '%s\n' "$@" | sort -n | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
ms() { sed -n 's/.*: \([0-9.]*\) ms\/step.*/\1/p'; }
for _ in $(seq "${ROUNDS:-5}"); do
  line=$("$build/benchmarks/$program" --brief --seconds 4 "$@"); echo "$line"; stretto_ms+=("$(ms <<<"$line")")
  line=$("$python" "$peer" --seconds 4 "$@"); echo "$line"; pytorch_ms+=("$(ms <<<"$line")")
done
a=$(median "${stretto_ms[@]}") b=$(median "${pytorch_ms[@]}")
awk -v a="$a" -v b="$b" 'BEGIN {printf "medians: stretto %.1f ms, pytorch %.1f ms, ratio %.2f\n", a, b, b / a}'
