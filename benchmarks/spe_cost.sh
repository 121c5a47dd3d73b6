#!/usr/bin/env bash
# The cost of SPE in a training step, in Stretto and as the authors compute it in PyTorch: three tables.
#   STRETTO_PYTHON=/path/to/venv/bin/python benchmarks/spe_cost.sh [BUILD] [options of both...]
# BUILD is a release build with benchmarks (default: build/release). Options, such as --layers 2 or
# --variants ape,sine, are passed to both programs. Without PyTorch only the first table is printed.
#
# PyTorch's memory is computed for the same model without allocating it (--meta). Its times are
# measured with 4 layers unless --layers is given: with 8 it needs more than 20 GB, because it does
# not return freed memory. Noise shared by all layers then has twice the weight.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
if [ $# -gt 0 ] && [ -d "$1" ]; then build=$1; shift; fi
python=${STRETTO_PYTHON:-python3}
"$build/benchmarks/spe_cost" "$@"
"$python" -c 'import torch' 2>/dev/null || {
  echo "PyTorch is not installed for $python; set STRETTO_PYTHON to a Python that has it" >&2; exit 0; }
# PyTorch is fastest next to other programs with these: no spinning, freed memory is reused.
export OMP_WAIT_POLICY=passive MALLOC_MMAP_THRESHOLD_=8589934592
export MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456
echo
"$python" "$root/benchmarks/spe_cost_torch.py" --meta "$@"
echo
"$python" "$root/benchmarks/spe_cost_torch.py" --layers 4 "$@"
