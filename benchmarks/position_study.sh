#!/usr/bin/env bash
# Trains one small language model with each of eight positional encodings, on the same text for the
# same number of steps. Prints a Markdown table of their losses at the training length and at four
# times that length (xl: with the memory of training, one segment, and with four times that memory).
#   benchmarks/position_study.sh BUILD DATA OUT [STEPS]
# BUILD is a release build, DATA a text file, OUT a directory for the runs. Finished runs are reused,
# interrupted ones are resumed. SEED (default 1) and OPTIONS (additional options of train_lm, such
# as OPTIONS="--preset nano") may be set.
set -euo pipefail
if [ $# -lt 3 ]; then echo "usage: $0 BUILD DATA OUT [STEPS]" >&2; exit 2; fi
program=$1/examples/train_lm data=$2 out=$3 steps=${4:-3000} seed=${SEED:-1}
[ -x "$program" ] || { echo "$program: not built" >&2; exit 2; }
[ -f "$data" ] || { echo "$data: no such file" >&2; exit 2; }
read -r -a more <<<"${OPTIONS:-}"
model=(--preset small ${more[@]+"${more[@]}"} --data "$data")
length=128 long=512
mkdir -p "$out"

train() {  # name of the run, then options
  local folder=$out/$1-$seed resume=()
  shift
  [ -f "$folder/done" ] && return
  [ -f "$folder/checkpoint.safetensors" ] && resume=(--resume "$folder/checkpoint.safetensors")
  "$program" "${model[@]}" "$@" --length $length --steps "$steps" --seed "$seed" --out "$folder" \
    ${resume[@]+"${resume[@]}"} >"$folder.log" 2>&1 || { tail -n 1 "$folder.log" >&2; exit 1; }
  touch "$folder/done"
}

bits() {  # run, row of its evaluation.csv; in brackets the average number of tokens a layer attends to
  awk -F, -v row="$2" 'NR == row + 1 {printf "%.3f (%.0f)", $6 / log(2), $4}' "$out/$1-$seed/evaluation.csv"
}
parameters() { "$program" "${model[@]}" "$@" --length $length --parameters | tail -n 1; }

row() {  # name in the table, run, options of the model
  local name=$1 run=$2
  shift 2
  echo "| $name | $(parameters "$@") | $(bits "$run" 1) | $(bits "$run" 2) |"
}

for position in none sinusoid shaw music t5 alibi rope; do
  train "$position" --position "$position" --memory 0 --eval-memory 0 --eval-length $length,$long
done
train xl --position xl --memory $length --eval-memory $length,$long --eval-length $length

echo "Bits per byte on the whole held-out text; in brackets the average number of tokens a layer attends to;"
echo "after $steps steps, segments of $length tokens, seed $seed."
echo
echo "| position | parameters | training length | four times the length |"
echo "| --- | ---: | ---: | ---: |"
for position in none sinusoid shaw music t5 alibi rope; do
  row "$position" "$position" --position "$position" --memory 0
done
row "xl, with memory" xl --position xl --memory $length
echo
awk '/^  (unigram|bigram) / {printf "%s %s  ", $1, $2} END {print "(bits; n-gram baselines)"}' \
  "$out/xl-$seed.log"
