#!/usr/bin/env bash
# Times a training step here and in PyTorch, in turns, and prints the ratio of the medians.
#   STRETTO_PYTHON=/path/to/venv/bin/python benchmarks/train_step.sh [BUILD] [options of both...]
# BUILD is a release build with benchmarks (default: build/release). Options, such as --length 1024
# or --attention absolute, go to both programs. ROUNDS (default 5) says how many turns, PROGRAM
# (default train_step; or linear_attention) what is timed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
if [ $# -gt 0 ] && [ -d "$1" ]; then build=$1; shift; fi
python=${STRETTO_PYTHON:-python3}
program=${PROGRAM:-train_step}
peer=$root/benchmarks/$program.py
[ -f "$peer" ] || peer=$root/benchmarks/${program}_torch.py
"$python" -c 'import torch' 2>/dev/null || {
  echo "PyTorch is not in $python; name one that has it: STRETTO_PYTHON=..." >&2; exit 2; }
# What PyTorch needs to do its best beside other programs: no spinning, no memory given back.
export OMP_WAIT_POLICY=passive MALLOC_MMAP_THRESHOLD_=8589934592
export MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456
ours=() theirs=()
median() { printf '%s\n' "$@" | sort -n | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
ms() { sed -n 's/.*: \([0-9.]*\) ms\/step.*/\1/p'; }
for _ in $(seq "${ROUNDS:-5}"); do
  line=$("$build/benchmarks/$program" --brief --seconds 4 "$@"); echo "$line"; ours+=("$(ms <<<"$line")")
  line=$("$python" "$peer" --seconds 4 "$@"); echo "$line"; theirs+=("$(ms <<<"$line")")
done
a=$(median "${ours[@]}") b=$(median "${theirs[@]}")
awk -v a="$a" -v b="$b" 'BEGIN {printf "medians: stretto %.1f ms, pytorch %.1f ms, ratio %.2f\n", a, b, b / a}'
