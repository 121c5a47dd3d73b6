#!/usr/bin/env bash
# The effect of the precision of matrix products on training: final validation losses of two small
# models with three seeds each, as a table in Markdown.
#   benchmarks/precision.sh [BUILD] [CHORALES.json TEXT]
# BUILD is a release build (default: build/release); without files the programs generate their data.
# Columns: f32; f32 computed as 3 and 1 products of bf16 with AMX (emulated on CPUs without AMX,
# about 15 times slower); weights and activations in bf16.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
if [ $# -gt 0 ] && [ -d "$1" ]; then build=$1; shift; fi
data_chorales=() data_lm=()
if [ $# -gt 1 ]; then data_chorales=(--data "$1") data_lm=(--data "$2"); fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
common=(--overwrite --layers 2 --d-model 64 --heads 2 --d-hidden 256 --length 128 --batch 8
  --dropout 0 --steps "${STEPS:-800}" --evaluate-every "${STEPS:-800}" --save-every 100000)
tiles=amx
STRETTO_CPU=amx "$build/examples/train_lm" --version | grep -q "AMX" || tiles=emulated
loss() { # program cpu seed options...
  local program=$1 cpu=$2 seed=$3; shift 3
  local -a data
  if [ "$program" = train_lm ]; then
    data=("${data_lm[@]}" --validation-tokens 0)
  else
    data=("${data_chorales[@]}" --generate 0 --final-stride 128)
  fi
  STRETTO_CPU=$cpu "$build/examples/$program" "${data[@]}" "${common[@]}" --seed "$seed" \
    --out "$out" "$@" > "$out.log" 2>&1 || { cat "$out.log" >&2; exit 1; }
  awk -F, 'END {printf "%.4f", $4}' "$out/metrics.csv"
}
echo "| program | seed | f32 | high, tiles | medium, tiles | bf16 |"
echo "| --- | ---: | ---: | ---: | ---: | ---: |"
for program in train_chorales train_lm; do
  for seed in 1 2 3; do
    echo "| $program | $seed | $(loss $program avx512 $seed)" \
      "| $(loss $program $tiles $seed --matmul-precision high)" \
      "| $(loss $program $tiles $seed --matmul-precision medium)" \
      "| $(loss $program avx512 $seed --dtype bf16) |"
  done
done
