#!/usr/bin/env bash
# What SPE costs a training step, here and as the authors compute it in PyTorch: three tables.
#   STRETTO_PYTHON=/path/to/venv/bin/python benchmarks/spe_cost.sh [BUILD] [options of both...]
# BUILD is a release build with benchmarks (default: build/release). Options, such as --layers 2 or
# --variants ape,sine, go to both programs. Without PyTorch there is the first table alone.
#
# The peer's memory is counted for the same model without being taken (--meta). For its times it
# has 4 layers where --layers does not say otherwise: with 8 it takes more than 20 GB, as it keeps
# what it frees. A draw that all layers share weighs twice as much then.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
if [ $# -gt 0 ] && [ -d "$1" ]; then build=$1; shift; fi
python=${STRETTO_PYTHON:-python3}
"$build/benchmarks/spe_cost" "$@"
"$python" -c 'import torch' 2>/dev/null || {
  echo "PyTorch is not in $python; name one that has it: STRETTO_PYTHON=..." >&2; exit 0; }
# What PyTorch needs to do its best beside other programs: no spinning, no memory given back.
export OMP_WAIT_POLICY=passive MALLOC_MMAP_THRESHOLD_=8589934592
export MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456
echo
"$python" "$root/benchmarks/spe_cost_torch.py" --meta "$@"
echo
"$python" "$root/benchmarks/spe_cost_torch.py" --layers 4 "$@"
